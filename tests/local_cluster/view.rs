//! The cluster as one node sees it: its answer to `CLUSTER NODES`.

/// A line of `CLUSTER NODES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node id.
    pub id: String,
    /// The client port, which tells the nodes of a cluster on one machine apart.
    pub port: u16,
    /// Flags such as `master`, `slave`, `fail?`, `handshake`.
    pub flags: Vec<String>,
    /// The id of its primary if it is a replica.
    pub primary: Option<String>,
    /// The version of its claim to its slots.
    pub epoch: u64,
    /// Its slots, as inclusive ranges.
    pub slots: Vec<(u16, u16)>,
}

impl Member {
    /// Whether it has this flag.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// Whether the slot is its own.
    pub fn owns(&self, slot: u16) -> bool {
        self.slots
            .iter()
            .any(|&(first, last)| (first..=last).contains(&slot))
    }
}

/// Reads the answer to `CLUSTER NODES`; nodes that are just being met are left out.
pub(super) fn parse_members(text: &str) -> Result<Vec<Member>, String> {
    let members: Result<Vec<Member>, String> = text
        .lines()
        .map(|line| parse_member(line).ok_or_else(|| format!("not a node: {line:?}")))
        .collect();
    let mut members = members?;
    members.retain(|member| !member.has("handshake"));
    members.sort_by_key(|member| member.port);
    Ok(members)
}

/// `id ip:port@bus flags primary ping pong epoch link slot…`
fn parse_member(line: &str) -> Option<Member> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [
        id,
        addr,
        flags,
        primary,
        _ping,
        _pong,
        epoch,
        _link,
        slots @ ..,
    ] = fields.as_slice()
    else {
        return None;
    };
    let (_, port) = addr.split_once('@')?.0.rsplit_once(':')?;
    let slots: Option<Vec<(u16, u16)>> = slots
        .iter()
        // A slot in motion is shown as `[slot->-id]` and listed as owned besides.
        .filter(|slot| !slot.starts_with('['))
        .map(|slot| {
            let (first, last) = slot.split_once('-').unwrap_or((slot, slot));
            Some((first.parse().ok()?, last.parse().ok()?))
        })
        .collect();
    Some(Member {
        id: (*id).to_owned(),
        port: port.parse().ok()?,
        flags: flags.split(',').map(str::to_owned).collect(),
        primary: (*primary != "-").then(|| (*primary).to_owned()),
        epoch: epoch.parse().ok()?,
        slots: slots?,
    })
}
