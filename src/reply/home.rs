//! Where the units of a cell are: who must hear that its caller has gone.

use crate::proto::cluster::NodeKey;

/// Where the units of a cell are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// In the queue of a node, or on its wire.
    Node(NodeKey),
    /// With the coordinator.
    Coordinator,
}

/// All places that units of one cell were put to, the last one last.
#[derive(Debug)]
pub(super) enum Homes {
    None,
    One(Home),
    Many(Vec<Home>),
}

impl Homes {
    pub(super) fn add(&mut self, home: Home) {
        match self {
            Homes::None => *self = Homes::One(home),
            Homes::One(present) if *present == home => {}
            Homes::One(present) => *self = Homes::Many(vec![*present, home]),
            Homes::Many(homes) => {
                if homes.last() != Some(&home) {
                    homes.retain(|present| *present != home);
                    homes.push(home);
                }
            }
        }
    }

    pub(super) fn into_vec(self) -> Vec<Home> {
        match self {
            Homes::None => Vec::new(),
            Homes::One(home) => vec![home],
            Homes::Many(homes) => homes,
        }
    }

    pub(super) fn to_vec(&self) -> Vec<Home> {
        match self {
            Homes::None => Vec::new(),
            Homes::One(home) => vec![*home],
            Homes::Many(homes) => homes.clone(),
        }
    }
}
