#!/usr/bin/env bash
# Deliberate defects, each of which some test must notice: of the core, and of the two small types
# whose races are modelled.
#
#     tests/mutations.sh            all of them
#     tests/mutations.sh release    those whose name has "release" in it, or any further word
#
# Each one is applied to a copy of the sources, never to the sources themselves, and the tests of
# the copy are run: first a tenth of the random ones, all of them only if those notice nothing. A
# defect that no test notices, or that cannot be applied any more because the code has changed,
# makes the script fail. Takes some ten minutes on two cores.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
copy=${TMPDIR:-/tmp}/reslot-mutations
words=("$@")
[ $# -gt 0 ] || words=("")
failed=0
tests="proto::slot::map proto::redirect proto::queue proto::inflight proto::outbox proto::verdict proto::cluster proto::refresh"
export RUST_BACKTRACE=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR="$copy/target"
export CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_DEBUG=0

# Two crates that need nothing of the rest and are built in no time: the core with its tests, and
# the modelled types with their models.
for crate in core models; do
    mkdir -p "$copy/$crate/src/runtime"
    cp "$root/Cargo.toml" "$root/Cargo.lock" "$copy/$crate/"
    touch "$copy/$crate/README.md"
done
lead='//! A part of the sources.
#![allow(dead_code, unused_imports, unreachable_pub, missing_debug_implementations)]'
printf '%s\nmod proto;\n' "$lead" >"$copy/core/src/lib.rs"
printf '%s\n%s\n' "$lead" \
    'mod proto; mod reply; mod sync; mod runtime { mod clock; mod rest; mod seat; }' >"$copy/models/src/lib.rs"

# The sources as they are, in both crates.
restore() {
    for part in core/src/proto models/src/{proto,reply,reply.rs,sync.rs} \
        models/src/runtime/{clock.rs,rest.rs,seat,seat.rs}; do
        rm -rf "${copy:?}/$part"
        cp -r "$root/src/${part#*/src/}" "$copy/$part"
    done
    # The models need no tests of the core.
    find "$copy/models/src/proto" -name '*.rs' -exec sed -i 's/cfg(test)/cfg(any())/' {} +
}

# in_core | in_models <cargo test arguments>: in that crate; its output goes to the log.
in_core() {
    (cd "$copy/core" && timeout 120 cargo test --quiet --lib "$@") >"$copy/log" 2>&1
}

in_models() {
    (cd "$copy/models" && RUSTFLAGS="--cfg loom" \
        timeout 120 cargo test --quiet --release --lib "$@") >"$copy/log" 2>&1
}

# Runs all tests of a crate.
run_core() {
    RESLOT_TEST_ROUNDS=10 in_core -- $tests && in_core -- $tests
}

run_models() {
    in_models -- loom_
}

is_wanted() {
    local name=$1 word
    for word in "${words[@]}"; do
        case "$name" in *"$word"*) return 0 ;; esac
    done
    return 1
}

# mutate <name> <file below src/proto> <perl substitution over the whole file>
mutate() { mutate_in core "$1" "proto/$2" "$3"; }

# model <name> <file below src> <perl substitution over the whole file>
model() { mutate_in models "$@"; }

mutate_in() {
    local crate=$1 name=$2 file=$3
    is_wanted "$name" || return
    restore
    cp "$copy/$crate/src/$file" "$copy/before"
    perl -0pi -e "$4" "$copy/$crate/src/$file"
    local begun=$SECONDS result
    if cmp -s "$copy/before" "$copy/$crate/src/$file"; then
        result="NOT APPLIED"
    elif ! "in_$crate" --no-run; then
        result="NOT COMPILED"
    elif "run_$crate"; then
        result="NOT NOTICED"
    else
        # A defect may also keep a test from ever coming to its end, or end all of them.
        result="noticed by $(grep -c '^    [a-z_]*::' "$copy/log")"
        [ "$result" != "noticed by 0" ] || result="tests ended"
    fi
    case "$result" in NOT*) failed=1 ;; esac
    printf '%-13s  %3d s  %s\n' "$result" $((SECONDS - begun)) "$name"
}

# Without a defect nothing may fail, or the rest says nothing.
restore
for crate in core models; do
    if ! { "in_$crate" --no-run && "run_$crate"; }; then
        echo "the tests fail without any defect: $copy/log"
        exit 1
    fi
    printf '%-13s  %3d s  %s\n' "passed" "$SECONDS" "no defect: $crate"
done

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
mutate "write at once before the news that a slot is back" outbox.rs \
    's/ && !self\.has_given_away\(unit\)//'
mutate "write at once before what waits" outbox.rs \
    's/self\.is_connected\(\) && self\.is_idle\(\)/self.is_connected() \&\& !self.has_staged()/'
mutate "pause the command instead of its slot" cluster/redirects.rs \
    's/self\.hold_back\(slot\);\n        self\.holds\.pause\(slot, now \+ pause\);\n        self\.put_back\(from, slot, unit, now\);\n    }\n\n    \/\/\/ Holds a slot because/self.delay(unit, now + pause);\n        let _ = from;\n    }\n\n    \/\/\/ Holds a slot because/'
mutate "end a node before its slots are handed over" cluster/topology.rs \
    's/self\.owners\.contains\(&Some\(key\)\)\n            \|\| self\.routes\.contains\(&Some\(key\)\)\n            \|\| self\n                \.nodes\n                \.get\(key\)\n                \.is_some_and\(\|node\| node\.giving_up\.is_some\(\)\)\n            \|\| self\.barriers\.values\(\)\.any\(\|barrier\| barrier\.node == key\)/self.owners.contains(&Some(key))/'
mutate "publish the new owner at once" cluster/commit.rs \
    's/if from\.is_none\(\) && !held \{/if !held {/'
mutate "waiting units before written ones" cluster/holds.rs \
    's/(    \/\/\/ They were on the wire of the old owner\.\n    Returned,\n)(    \/\/\/ They waited in the old owner.s queue\.\n    Extracted,\n)/$2$1/'
mutate "parked units before waiting ones" cluster/holds.rs \
    's/(    \/\/\/ They waited in the old owner.s queue\.\n    Extracted,\n)(    \/\/\/ They were handed over since\.\n    Parked,\n)/$2$1/'
mutate "parked units stay behind when their slot is handed over" cluster/holds.rs \
    's/self\.waiting\.map_or_else\(Vec::new, \|waiting\| \{/self.waiting.map_or_else(Vec::new, |mut waiting| {\n            let parked = waiting.lists.remove(\&Place::Parked);\n            parked.into_iter().for_each(std::mem::forget);/'
mutate "strays are queued where they were" outbox.rs \
    's/contains\(&self\.given_away, slot\) && !guest/contains(&self.given_away, slot) \&\& guest/'
mutate "a barrier looks at the first command of a part only" inflight.rs \
    's/entry\.unit\.touches\(\|slot\| slots\.contains\(slot\)\)/entry.unit.slot(0).is_some_and(|slot| slots.contains(slot))/'
mutate "units of callers that have gone hold a barrier" inflight.rs \
    's/ && !entry\.unit\.ticket\.is_dead\(\)//'
mutate "a late barrier is waited for" cluster/commit.rs \
    's/late\.push\(barrier\.node\);//'
mutate "a second hand-over of a slot is forgotten" cluster/commit.rs \
    's/self\.holds\.check_again\(slot\);\n    }\n\n    fn add_barrier/}\n\n    fn add_barrier/'

mutate "a slot that changed its place in a table is not found" slot/map.rs \
    's/self\.places\[moved\.index\(\)\] = place as u16;//'

# ASK.
mutate "younger asked units first" cluster/commit.rs \
    's/hops: Reverse\(hop\)/hops: Reverse(100 - hop)/'
mutate "follow ASK wherever it leads" cluster/redirects.rs \
    's/Some\(&node\) => node == to,\n            None if nodes\.contains\(&to\) => false,/Some(_) => true,\n            None if nodes.contains(&to) => true,/'
mutate "leave younger units at a target that takes over" cluster/redirects.rs \
    's/self\.drain\(slot, from\);//'
mutate "ASKING survives a move" queue.rs \
    's/unit\.asking = false;//'
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
mutate "a walk that stops at the first foreign unit" queue/line.rs \
    's/if wanted \{(\s+)taken\.push\(piece\)/if wanted \&\& kept.is_empty() {$1taken.push(piece)/'
mutate "bytes of answered units are kept" inflight.rs \
    's/self\.bytes -= entry\.unit\.bytes\(\)\.len\(\);//'
mutate "forget what is written when a connection is lost" inflight.rs \
    's/for entry in std::mem::take\(&mut self\.entries\) \{/for entry in std::mem::take(\&mut self.entries).into_iter().take(0) {/'
mutate "a cancel may call unsent what may have run" inflight.rs \
    's/piece\.ticket\.release\(known\)/piece.ticket.release(known.filter(|_| false))/'
mutate "a half-written command counts as sent" inflight.rs \
    's/_ if entry\.end <= written => entry\.unit\.places\(\),/_ if start < written => entry.unit.places(),/'
mutate "a chain ends before EXEC" unit.rs \
    's/(Body::Chain \{ members, \.\. \} => members) \+ 2/$1 + 1/'
mutate "a part moves whole, by its first command" queue/line.rs \
    's/unit\.divide\(&wanted, \|wanted, piece\| \{/Some(unit).into_iter().for_each(|piece| {\n                let wanted = wanted(piece.facts(0).target);/'
mutate "what stays is turned round" queue/line.rs \
    's/kept\.push_back\(piece\)/kept.push_front(piece)/'
mutate "write what has expired" outbox.rs \
    's/if unit\.is_expired\(now\) \{\n                expire/if unit.is_expired(now) \&\& false {\n                expire/'
mutate "a redirect of one that has gone is followed" verdict.rs \
    's/if unit\.ticket\.release\(Some\(known\)\) \{/if unit.ticket.release(Some(known)) || true {/'

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
mutate "an error of a script counts as the server's" redirect.rs \
    's/self == Author::Server$/true/m'
mutate "TRYAGAIN costs a redirect" cluster/redirects.rs \
    's/matches!\(redirect, Redirect::Moved\(\.\.\) \| Redirect::Ask\(\.\.\)\)/matches!(redirect, Redirect::Moved(..) | Redirect::Ask(..) | Redirect::TryAgain)/'
mutate "TRYAGAIN does not pause" cluster/redirects.rs \
    's/self\.delay\(unit, now \+ pause\);\n        self\.watch_deadlines/self.delay(unit, now);\n        self.watch_deadlines/'

# The map.
mutate "an old map overwrites a newer MOVED" cluster/topology.rs \
    's/is_some_and\(\|&patched\| patched > sent\)\n            \{\n                continue/is_some_and(|&patched| patched > sent \&\& false)\n            {\n                continue/'
mutate "believe the first hole" cluster/topology.rs \
    's/&& !self\.holes\.contains\(slot\)/\&\& false/'
mutate "two refreshes at a time" refresh.rs \
    's/let \(cause, _\) = self\.wanted\.filter\(\|_\| self\.running\.is_none\(\)\)\?;\n        if self/let (cause, _) = self.wanted?;\n        if self/'
mutate "a node that lost its configuration takes over" cluster/topology.rs \
    's/self\.settings\.seeds\.len\(\) == 1 && first/self.settings.seeds.len() == 1 || first \&\& false/'
mutate "MOVED changes nothing until the next map" cluster/redirects.rs \
    's/self\.change_owner\(\*slot, Some\(to\)\);//'
mutate "a request during a refresh is forgotten" refresh.rs \
    's/asked > sent\)/asked > sent \&\& false)/'

# The reply cell: what only some orders of its steps show.
model "written after its caller has gone" reply.rs \
    's/(fn claim.*?let gone = )state\.gone;/${1}false;/s'
model "the claim looks, and takes later" reply.rs \
    's/(fn claim.*?let gone = state\.gone;)/$1\n        drop(state);\n        let mut state = self.cell.state.lock();/s'
model "released, and known only later" reply.rs \
    's/known\.clone\(\)\.or_else\(\|\| note\.take\(\)\)/note.take().filter(|_| known.is_none())/'
model "a claimed command counts as unsent" reply.rs \
    's/\(Certainty::Unknown, note\.take\(\)\)/(Certainty::NotSent, note.take())/'
model "the caller looks, and waits later" reply.rs \
    's/let mut state = self\.state\.lock\(\);\n        while state\.open > 0 \{/let mut open = self.state.lock().open;\n        let mut state = self.state.lock();\n        while std::mem::replace(\&mut open, state.open) > 0 {/'
model "the last reply wakes nobody" reply.rs \
    's/let wake = ended > 0/let wake = ended > 1/'
model "the first reply wakes" reply.rs \
    's/(fn wait\(.*?)while state\.open > 0/$1if state.open > 0/s; s/ended > 0 && state\.open == 0/ended > 0/'
model "giving up wakes nobody" reply.rs \
    's/drop\(state\);\n        self\.done\.notify_all\(\);\n        Some/drop(state);\n        Some/'
model "a late reply replaces the end" reply.rs \
    's/if !matches!\(place, Place::Done\(_\)\) \{/if state_is_open {/; s/let \(extended, in_order\) = \(state\.extended, state\.order\.is_none\(\)\);/let (extended, in_order, state_is_open) = (state.extended, state.order.is_none(), true);/; s/state\.open -= ended/state.open = state.open.saturating_sub(ended)/'
model "giving up replaces the reply" reply.rs \
    's/Place::Done\(_\) => continue,/Place::Done(_) => (Certainty::Unknown, None),/; s/if state\.open == 0 \{\n            return None;\n        \}\n        let commands/let commands/'
model "a dropped ticket settles nothing" reply.rs \
    's/if self\.places > 0 \{/if self.places > 1000 {/'

# The seat, and the callers that are asked to take it.
model "two read at once" runtime/seat.rs \
    's/std::mem::replace\(self, Seat::Taken\) != Seat::Taken/{ *self = Seat::Taken; true }/'
model "the thread sleeps although it has to read" runtime/seat.rs \
    's/is_quiet \|\| self != Seat::Free$/true/m'
model "the thread is not called" runtime/seat.rs \
    's/map_or\(Next::Thread, Next::Caller\)/map_or(Next::Nobody, Next::Caller)/'
model "somebody was asked who does not hear of it" reply/asked.rs \
    's/self.done.notify_all\(\);//'
model "one who does not wait is asked" reply/asked.rs \
    's/matches!\(state.asked, Asked::Ready\)/!matches!(state.asked, Asked::Yes(_))/'
model "one without time forgets that it was asked" reply/asked.rs \
    's/if asked.is_some\(\) \|\|/if asked.is_some() \&\& limit.is_none() ||/'

# The rest of the reading thread.
model "it looks whether it has to read before it says that it rests" runtime/rest.rs \
    's/(self\.resting\.store\(true, Ordering::SeqCst\);)(.*?)let is_woken = !may_sleep\(\) \|\|/let may_sleep = may_sleep();\n        $1\n        let is_woken = !may_sleep ||/s'
model "it does not look whether it has to read" runtime/rest.rs \
    's/!may_sleep\(\) \|\| self\.sleep/self.sleep/'
model "it says that it is up before it sleeps" runtime/rest.rs \
    's/(let is_woken = )(!may_sleep\(\) \|\| self\.sleep\(at_most\);)/$1!may_sleep() || {\n            self.resting.store(false, Ordering::SeqCst);\n            self.sleep(at_most)\n        };/'
model "word that came early is forgotten" runtime/rest.rs \
    's/let mut woken = self\.woken\.lock\(\);/let mut woken = self.woken.lock();\n        *woken = false;/'
model "word is left without a call" runtime/rest.rs \
    's/self\.wake\.notify_one\(\);//'
model "a call without word" runtime/rest.rs \
    's/\*self\.woken\.lock\(\) = true;//'
model "a call to one that does not rest yet is dropped" runtime/rest.rs \
    's/(pub\(super\) fn call\(&self\) \{)/$1\n        if !self.is_resting() {\n            return;\n        }/'
model "wakes nobody" runtime/rest.rs \
    's/if self\.is_resting\(\) \{\n            self\.call\(\);/if self.is_resting() \&\& false {\n            self.call();/'

exit $failed
