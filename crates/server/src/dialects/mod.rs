//! One folder per dialect, one line here. No dialect knows of another.

use axum::Router;

use crate::app::App;

macro_rules! dialects {
    ($($dialect:ident,)+) => {
        $(mod $dialect;)+

        /// The routes of every dialect.
        pub(crate) fn routes() -> Router<App> {
            Router::new()$(.merge($dialect::routes()))+
        }
    };
}

dialects! {
    openai,
}

/// The form of errors outside of any dialect's routes.
pub(crate) use openai::error_body;
