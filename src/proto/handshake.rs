//! How a connection is set up: protocol, login, name, replica reads. One write, then its replies;
//! announcements are asked for afterwards, as only RESP3 has them.
//!
//! User commands follow only after the last reply, so that none of them can run without login and
//! no missing reply can put them out of step.

use super::resp::encode::Encoded;
use super::value::{ServerError, Value};

/// What to set up.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) client_name: Option<String>,
    /// Reads are to be served by replicas, too.
    pub(crate) readonly: bool,
    /// Do not try RESP3.
    pub(crate) resp2: bool,
    /// Announcements of maintenance are wanted.
    pub(crate) announcements: Option<Announcements>,
}

/// How to ask for announcements of maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announcements {
    /// Which of its names a server is to tell when its endpoint moves, such as `internal-ip`.
    pub(crate) endpoint: &'static str,
    /// A connection without them is of no use.
    pub(crate) required: bool,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup")
            .field("client_name", &self.client_name)
            .finish_non_exhaustive()
    }
}

/// A handshake under way.
#[derive(Debug)]
pub(crate) struct Handshake {
    setup: Setup,
    /// Commands whose replies are still to come, oldest first.
    pending: std::collections::VecDeque<Step>,
    /// HELLO was not understood: everything is said again without it.
    fall_back: bool,
}

/// What a reply answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Hello,
    Auth,
    /// Announcements, and not without.
    Required,
    /// Its errors do not matter. Names and versions are for the operator's eyes, and a node that
    /// refuses READONLY (a single server) is no replica.
    Optional,
}

/// What to do after a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Wait for the next reply.
    Wait,
    /// Write this and go on.
    Write(Vec<u8>),
    /// The connection is ready.
    Ready,
}

impl Handshake {
    /// A handshake and the bytes that start it. `None` bytes: there is nothing to say.
    pub(crate) fn start(setup: Setup) -> (Self, Vec<u8>) {
        let resp2 = setup.resp2;
        let mut handshake = Self {
            setup,
            pending: std::collections::VecDeque::new(),
            fall_back: false,
        };
        let mut bytes = Vec::new();
        if resp2 {
            handshake.say_auth(&mut bytes);
        } else {
            handshake.say_hello(&mut bytes);
        }
        handshake.say_rest(&mut bytes);
        (handshake, bytes)
    }

    /// Takes the next reply. An error ends the connection: the server's own words.
    pub(crate) fn accept(&mut self, reply: Value) -> Result<Progress, ServerError> {
        let step = self.pending.pop_front();
        let step = step.ok_or_else(|| ServerError::new("ERR a reply that nobody asked for"))?;
        if let Value::Error(error) = reply {
            match step {
                Step::Optional => {}
                Step::Hello if is_unknown_hello(&error) => self.fall_back = true,
                Step::Hello | Step::Auth | Step::Required => return Err(error),
            }
        }
        if !self.pending.is_empty() {
            return Ok(Progress::Wait);
        }
        let announcements = self.setup.announcements.take();
        if std::mem::take(&mut self.fall_back) {
            if announcements.is_some_and(|wanted| wanted.required) {
                return Err(ServerError::new(
                    "NOPROTO announcements of maintenance need RESP3",
                ));
            }
            let mut bytes = Vec::new();
            self.say_auth(&mut bytes);
            self.say_rest(&mut bytes);
            return Ok(Progress::Write(bytes));
        }
        match announcements.filter(|_| !self.setup.resp2) {
            Some(wanted) => Ok(Progress::Write(self.ask_for(wanted))),
            None => Ok(Progress::Ready),
        }
    }

    fn ask_for(&mut self, wanted: Announcements) -> Vec<u8> {
        let step = if wanted.required {
            Step::Required
        } else {
            Step::Optional
        };
        let request = [
            "CLIENT",
            "MAINT_NOTIFICATIONS",
            "ON",
            "moving-endpoint-type",
        ];
        let mut request = words(&request);
        request.push(wanted.endpoint.as_bytes());
        let mut bytes = Vec::new();
        self.say(step, &request, &mut bytes);
        bytes
    }

    fn say_hello(&mut self, bytes: &mut Vec<u8>) {
        let mut hello = Encoded::new(b"HELLO");
        hello.push(b"3");
        if let Some(password) = &self.setup.password {
            hello.push(b"AUTH");
            hello.push(
                self.setup
                    .username
                    .as_deref()
                    .unwrap_or("default")
                    .as_bytes(),
            );
            hello.push(password.as_bytes());
        }
        self.say(Step::Hello, &hello, bytes);
    }

    fn say_auth(&mut self, bytes: &mut Vec<u8>) {
        if let Some(password) = &self.setup.password {
            let mut auth = Encoded::new(b"AUTH");
            if let Some(username) = &self.setup.username {
                auth.push(username.as_bytes());
            }
            auth.push(password.as_bytes());
            self.say(Step::Auth, &auth, bytes);
        }
    }

    fn say_rest(&mut self, bytes: &mut Vec<u8>) {
        if let Some(name) = &self.setup.client_name {
            self.say(Step::Optional, &words(&["CLIENT", "SETNAME", name]), bytes);
        }
        // Unknown before Redis 7.2.
        let version = env!("CARGO_PKG_VERSION");
        self.say(
            Step::Optional,
            &words(&["CLIENT", "SETINFO", "LIB-NAME", "reslot"]),
            bytes,
        );
        self.say(
            Step::Optional,
            &words(&["CLIENT", "SETINFO", "LIB-VER", version]),
            bytes,
        );
        if self.setup.readonly {
            self.say(Step::Optional, &words(&["READONLY"]), bytes);
        }
    }

    fn say(&mut self, step: Step, command: &Encoded, bytes: &mut Vec<u8>) {
        command.append_to(bytes);
        self.pending.push_back(step);
    }
}

fn words(words: &[&str]) -> Encoded {
    let mut command = Encoded::new(words[0].as_bytes());
    words[1..]
        .iter()
        .for_each(|word| command.push(word.as_bytes()));
    command
}

/// Whether the server refused HELLO itself (too old, or a proxy), not the login that it carries.
fn is_unknown_hello(error: &ServerError) -> bool {
    let line = error.line().to_ascii_lowercase();
    error.code() == "NOPROTO" || (error.code() == "ERR" && line.contains("unknown command"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> Setup {
        Setup {
            password: Some("secret".into()),
            readonly: true,
            ..Setup::default()
        }
    }

    fn error(line: &str) -> Value {
        Value::Error(ServerError::new(line))
    }

    #[test]
    fn one_write_and_optional_steps_may_fail() {
        let (mut handshake, bytes) = Handshake::start(setup());
        assert!(bytes.starts_with(b"*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault"));
        assert_eq!(handshake.accept(Value::Map(vec![])), Ok(Progress::Wait));
        assert_eq!(
            handshake.accept(error("ERR unknown subcommand")),
            Ok(Progress::Wait)
        );
        assert_eq!(handshake.accept(Value::Ok), Ok(Progress::Wait));
        assert_eq!(handshake.accept(Value::Ok), Ok(Progress::Ready));
    }

    #[test]
    fn only_an_unknown_hello_falls_back() {
        for line in [
            "ERR unknown command 'HELLO'",
            "NOPROTO unsupported protocol version",
        ] {
            let (mut handshake, _) = Handshake::start(setup());
            assert_eq!(handshake.accept(error(line)), Ok(Progress::Wait));
            for _ in 0..2 {
                let reply = handshake.accept(error("NOAUTH Authentication required."));
                assert_eq!(reply, Ok(Progress::Wait));
            }
            let Ok(Progress::Write(bytes)) = handshake.accept(error("NOAUTH")) else {
                panic!("the login is said again without HELLO")
            };
            assert!(bytes.starts_with(b"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n"));
            for _ in 0..3 {
                assert_eq!(handshake.accept(Value::Ok), Ok(Progress::Wait));
            }
            assert_eq!(handshake.accept(Value::Ok), Ok(Progress::Ready));
        }
        for line in [
            "WRONGPASS invalid username-password pair",
            "NOPERM no",
            "NOAUTH HELLO must",
        ] {
            let (mut handshake, _) = Handshake::start(setup());
            assert!(handshake.accept(error(line)).is_err(), "{line}");
        }
    }

    /// Answers what is asked first, with `hello` for the first of it, and gives what follows.
    fn asks_for_announcements(
        required: bool,
        resp2: bool,
        hello: Value,
    ) -> (Handshake, Result<Progress, ServerError>) {
        let (mut handshake, first) = Handshake::start(Setup {
            resp2,
            announcements: Some(Announcements {
                endpoint: "internal-ip",
                required,
            }),
            ..Setup::default()
        });
        assert!(!String::from_utf8(first).unwrap().contains("MAINT"));
        let mut progress = handshake.accept(hello);
        while progress == Ok(Progress::Wait) {
            progress = handshake.accept(error("ERR unknown subcommand"));
        }
        (handshake, progress)
    }

    #[test]
    fn announcements_are_asked_for_once_resp3_is_agreed_on() {
        for required in [false, true] {
            let (mut handshake, progress) =
                asks_for_announcements(required, false, Value::Map(vec![]));
            let Ok(Progress::Write(bytes)) = progress else {
                panic!("{progress:?}")
            };
            let request = "*5\r\n$6\r\nCLIENT\r\n$19\r\nMAINT_NOTIFICATIONS\r\n$2\r\nON\r\n\
                $20\r\nmoving-endpoint-type\r\n$11\r\ninternal-ip\r\n";
            assert_eq!(String::from_utf8(bytes).unwrap(), request);
            let refused = handshake.accept(error("ERR unknown subcommand"));
            assert_eq!(refused.is_err(), required, "{refused:?}");
            if !required {
                assert_eq!(refused, Ok(Progress::Ready));
            }
        }
    }

    #[test]
    fn resp2_is_never_asked_for_announcements() {
        let (_, progress) = asks_for_announcements(false, true, Value::Ok);
        assert_eq!(progress, Ok(Progress::Ready));
        let old = error("ERR unknown command 'HELLO'");
        let (mut handshake, progress) = asks_for_announcements(false, false, old.clone());
        let Ok(Progress::Write(bytes)) = progress else {
            panic!("{progress:?}")
        };
        assert!(!String::from_utf8(bytes).unwrap().contains("MAINT"));
        assert_eq!(handshake.accept(Value::Ok), Ok(Progress::Wait));
        assert_eq!(handshake.accept(Value::Ok), Ok(Progress::Ready));
        let (_, progress) = asks_for_announcements(true, false, old);
        assert!(progress.is_err(), "{progress:?}");
    }

    #[test]
    fn debug_shows_no_password() {
        assert!(!format!("{:?}", setup()).contains("secret"));
    }
}
