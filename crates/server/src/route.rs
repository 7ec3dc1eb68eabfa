//! A route, and what is said of it. The router, the check of keys and the OpenAPI document are all
//! made from one list of these, so that none of them can miss one.

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{self, MethodRouter};

use crate::app::App;
use crate::describe::Field;

/// One method of one path.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// With the router's `{name}` and `{*name}` for parts that vary.
    pub(crate) path: &'static str,
    /// What it does, in a few words.
    pub(crate) about: &'static str,
    pub(crate) access: Access,
    /// Groups of fields of its body; none where it takes no body.
    pub(crate) fields: &'static [&'static [Field]],
    pub(crate) handler: MethodRouter<App>,
}

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Whoever has a key, where the server has any.
    Keyed,
    /// Everybody: it tells whether the server is well, and nothing else.
    Open,
}

impl Route {
    pub(crate) fn get<H: Handler<T, App>, T: 'static>(
        path: &'static str,
        handler: H,
        about: &'static str,
    ) -> Route {
        Route::new(Method::GET, path, routing::get(handler), about)
    }

    pub(crate) fn post<H: Handler<T, App>, T: 'static>(
        path: &'static str,
        handler: H,
        about: &'static str,
    ) -> Route {
        Route::new(Method::POST, path, routing::post(handler), about)
    }

    pub(crate) fn put<H: Handler<T, App>, T: 'static>(
        path: &'static str,
        handler: H,
        about: &'static str,
    ) -> Route {
        Route::new(Method::PUT, path, routing::put(handler), about)
    }

    pub(crate) fn delete<H: Handler<T, App>, T: 'static>(
        path: &'static str,
        handler: H,
        about: &'static str,
    ) -> Route {
        Route::new(Method::DELETE, path, routing::delete(handler), about)
    }

    fn new(
        method: Method,
        path: &'static str,
        handler: MethodRouter<App>,
        about: &'static str,
    ) -> Route {
        Route { method, path, about, access: Access::Keyed, fields: &[], handler }
    }

    /// Needs no key.
    pub(crate) fn open(self) -> Route {
        Route { access: Access::Open, ..self }
    }

    /// Takes a body with these fields.
    pub(crate) fn takes(self, fields: &'static [&'static [Field]]) -> Route {
        Route { fields, ..self }
    }
}
