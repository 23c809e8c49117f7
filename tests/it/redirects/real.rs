//! The same against real servers, where their exact behaviour matters.
