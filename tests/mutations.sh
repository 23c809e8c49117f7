#!/bin/sh
# Deliberate defects of the core, each of which some test of it must notice.
#
#   sh tests/mutations.sh            all of them
#   sh tests/mutations.sh release    those whose name contains "release"
#
# Each one is applied to a copy of the sources, never to the sources themselves, and
# `cargo test --lib proto::` is run on the copy. A defect that no test notices, or that cannot be
# applied any more because the code has changed, makes the script fail.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
copy=${TMPDIR:-/tmp}/reslot-mutations
only=${1:-}
failed=0
mkdir -p "$copy"

# mutate <name> <file below src/proto> <perl substitution over the whole file>
mutate() {
    case "$1" in *"$only"*) ;; *) return ;; esac
    rm -rf "$copy/src" && cp -r "$root/src" "$root/Cargo.toml" "$root/Cargo.lock" "$copy/"
    [ -f "$root/README.md" ] && cp "$root/README.md" "$copy/"
    perl -0pi -e "$3" "$copy/src/proto/$2"
    if cmp -s "$root/src/proto/$2" "$copy/src/proto/$2"; then
        echo "NOT APPLIED  $1"
        failed=1
        return
    fi
    if ! (cd "$copy" && cargo test --offline --lib --no-run >"$copy/log" 2>&1); then
        echo "NOT COMPILED $1"
        failed=1
        return
    fi
    # A defect may also keep a test from ever coming to its end.
    if (cd "$copy" && timeout 300 cargo test --offline --lib proto:: >"$copy/log" 2>&1); then
        echo "NOT NOTICED  $1"
        failed=1
    else
        echo "noticed      $1: $(grep -c '^test .* FAILED' "$copy/log") tests"
    fi
}

# The order of a hand-over.
mutate "publish before the move" cluster/commit.rs \
    's/self\.set_route\(slot, None\);\n        self\.holds\.hold/let to = self.owner(slot);\n        self.set_route(slot, to);\n        self.holds.hold/'
mutate "release before drained" cluster/holds.rs \
    's/hold\.draining == 0 && !paused/!paused/'
mutate "release before the pause ends" cluster/holds.rs \
    's/hold\.draining == 0 && !paused/hold.draining == 0/'
mutate "forget what is written when a slot leaves" inflight.rs \
    's/let until = self\.last_of\(&slots\);/let until = 0;/'
mutate "insert a hand-over at the head" outbox.rs \
    's/(units\.into_iter\(\)\.for_each\(\|unit\| self\.queue)\.push\(unit\)/$1.requeue(vec![unit])/'
mutate "hand parked units over outside of the commit" cluster/mod.rs \
    's/Some\(slot\) if !piece\.is_expired\(now\) => cluster\.park/Some(slot) if piece.is_expired(now) => cluster.park/'
mutate "strays behind what waited" cluster/mod.rs \
    's/place_of\(slot, Some\(from\), Place::Returned\)/place_of(slot, Some(from), Place::Extracted)/'
mutate "returned units behind parked ones" cluster/redirects.rs \
    's/let place = self\.place_of\(slot, Some\(from\), Place::Returned\);/let place = Place::Parked;/'
mutate "ignore a change of owner during a hand-over" cluster/commit.rs \
    's/let from = std::mem::replace/if self.holds.contains(slot) {\n            return;\n        }\n        let from = std::mem::replace/'
mutate "keep taking units of slots that left" outbox.rs \
    's/self\.given_away\n            \.get_or_insert_with\(SlotSet::new\)\n            \.extend\(slots\);//'
mutate "pause the command instead of its slot" cluster/redirects.rs \
    's/self\.hold_back\(slot\);\n        self\.holds\.pause\(slot, now \+ pause\);\n        self\.put_back\(from, slot, unit, now\);\n    }\n\n    \/\/\/ Holds a slot because/self.delay(unit, now + pause);\n        let _ = from;\n    }\n\n    \/\/\/ Holds a slot because/'
mutate "end a node before its slots are handed over" cluster/topology.rs \
    's/self\.owners\.contains\(&Some\(key\)\)\n            \|\| self\.routes\.contains\(&Some\(key\)\)\n            \|\| self\.giving_up\.contains_key\(&key\)\n            \|\| self\.barriers\.values\(\)\.any\(\|barrier\| barrier\.node == key\)/self.owners.contains(&Some(key))/'

# ASK.
mutate "younger asked units first" cluster/commit.rs \
    's/hops: Reverse\(hop\)/hops: Reverse(100 - hop)/'
mutate "follow ASK wherever it leads" cluster/redirects.rs \
    's/Some\(&node\) => node == to,\n            None if nodes\.contains\(&to\) => false,/Some(_) => true,\n            None if nodes.contains(&to) => true,/'
mutate "leave younger units at a target that takes over" cluster/redirects.rs \
    's/self\.drain\(slot, from\);//'
mutate "ASKING survives a move" queue.rs \
    's/taken\.iter_mut\(\)\.for_each\(\|unit\| unit\.asking = false\);//'
mutate "the reply of ASKING goes to its command" inflight.rs \
    's/if std::mem::take\(&mut entry\.asking\)/if std::mem::take(&mut entry.asking) \&\& false/'
mutate "ASK changes the map" cluster/redirects.rs \
    's/(Redirect::Ask\(_, endpoint\)) => \{/Redirect::Ask(slot, endpoint) => {\n                if let Some(to) = self.resolve(from, endpoint, now) {\n                    self.change_owner(*slot, Some(to));\n                }/'
mutate "asked units are left at a node that ends" cluster/topology.rs \
    's/retiring\.retain\(\|&key\| self\.asked_of\(key\)\.is_empty\(\)\);//; s/self\.collect\(slot, self\.owner\(slot\), None\);/let _ = slot;/'

# Settled once, and truthfully.
mutate "drop what has no owner" cluster/mod.rs \
    's/(self\.want_refresh\(RefreshCause::Uncovered, None\);\n)(        \}\n        self\.hold)/$1            return;\n$2/'
mutate "drop delayed units on close" cluster/mod.rs \
    's/units\.extend\(std::mem::take\(&mut self\.delayed\)\.into_values\(\)\);/self.delayed.clear();/'
mutate "never expire what is held" cluster/holds.rs \
    's/partition\(\|unit\| unit\.is_expired\(now\)\)/partition(|unit| unit.is_expired(now) \&\& false)/'
mutate "repeat a written write" inflight.rs \
    's/if was_sent && !repeatable \{/if false {/'
mutate "forget that a read may have run" inflight.rs \
    's/piece\.trail_mut\(\)\.lost = true;//'
mutate "a chain counts as sent with its first byte" inflight.rs \
    's/Body::One\(\.\.\) \| Body::Chain \{ \.\. \} => 0,/Body::One(..) => 0,\n        Body::Chain { .. } => usize::from(start < written),/'
mutate "write what was cancelled" outbox.rs \
    's/if !unit\.ticket\.claim\(\) \{\n                continue;\n            \}/unit.ticket.claim();/'
mutate "requeue in reverse" queue.rs \
    's/for unit in units\.into_iter\(\)\.rev\(\)/for unit in units.into_iter()/'
mutate "a walk that stops at the first foreign unit" queue.rs \
    's/if wanted \{\n                    taken\.push\(piece\)/if wanted \&\& kept.is_empty() {\n                    taken.push(piece)/'
mutate "bytes of answered units are kept" inflight.rs \
    's/self\.bytes -= entry\.unit\.bytes\(\)\.len\(\);//'

# Verdicts and budgets.
mutate "redirects are free" cluster/redirects.rs \
    's/trail\.redirects \+= 1;//'
mutate "TRYAGAIN after ASK costs a redirect" cluster/redirects.rs \
    's/trail\.redirects -= 1;//'
mutate "one more redirect than allowed" cluster/redirects.rs \
    's/trail\.redirects > self\.settings\.max_redirects/trail.redirects > self.settings.max_redirects + 1/'
mutate "redirect a chain that failed otherwise" verdict.rs \
    's/if pure && right_slot/if right_slot/'
mutate "follow a redirect of another slot" verdict.rs \
    's/asked != named/false \&\& asked != named/'
mutate "EXEC hides the redirect of a member" verdict.rs \
    's/let mut all: Vec<&ServerError> = errors\.iter\(\)\.map\(\|\(_, error\)\| error\)\.collect\(\);/let mut all: Vec<&ServerError> = Vec::new();/'

# The map.
mutate "an old map overwrites a newer MOVED" cluster/topology.rs \
    's/is_some_and\(\|&patched\| patched > sent\)\n            \{\n                continue/is_some_and(|&patched| patched > sent \&\& false)\n            {\n                continue/'
mutate "believe the first hole" cluster/topology.rs \
    's/&& !self\.holes\.contains\(slot\)/\&\& false/'
mutate "two refreshes at a time" refresh.rs \
    's/let \(cause, _\) = self\.wanted\.filter\(\|_\| self\.running\.is_none\(\)\)\?;\n        if self/let (cause, _) = self.wanted?;\n        if self/'
mutate "a node that lost its configuration takes over" cluster/topology.rs \
    's/self\.settings\.seeds\.len\(\) == 1 && first/self.settings.seeds.len() == 1 || first \&\& false/'

rm -rf "$copy/src"
exit $failed
