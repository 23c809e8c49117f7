//! How connections log in.

use std::fmt;
use std::sync::Arc;

use crate::proto::addr::NodeAddr;

/// A user name and a password. `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    username: Option<String>,
    password: String,
}

impl Credentials {
    /// The password of the default user.
    pub fn password(password: impl Into<String>) -> Self {
        Self {
            username: None,
            password: password.into(),
        }
    }

    /// A user of the access control list, and its password.
    pub fn user(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            username: Some(username.into()),
            password: password.into(),
        }
    }

    /// The user; `None` is the default user.
    pub(crate) fn username(&self) -> Option<&str> {
        self.username.as_deref()
    }

    pub(crate) fn secret(&self) -> &str {
        &self.password
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// Where credentials come from. Every connection asks anew, whatever it is for.
#[derive(Clone, Default)]
pub(crate) enum Login {
    /// Connections do not log in.
    #[default]
    None,
    Fixed(Credentials),
    /// The user's closure, which may return other credentials each time.
    Provider(Arc<Provide>),
}

type Provide = dyn Fn(&NodeAddr) -> Credentials + Send + Sync;

impl Login {
    /// What a new connection to this node logs in with.
    pub(crate) fn credentials(&self, addr: &NodeAddr) -> Option<Credentials> {
        match self {
            Login::None => None,
            Login::Fixed(credentials) => Some(credentials.clone()),
            Login::Provider(provide) => Some(provide(addr)),
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Login::None => f.write_str("None"),
            Login::Fixed(credentials) => credentials.fmt(f),
            Login::Provider(_) => f.write_str("Provider"),
        }
    }
}
