//! What many formats have in common, each told what is particular about a format. No file here knows a
//! family.

pub(crate) mod elements;
pub(crate) mod json;
pub(crate) mod literal;
pub(crate) mod named;
pub(crate) mod python;
pub(crate) mod scan;
pub(crate) mod typed;
pub(crate) mod xml;
