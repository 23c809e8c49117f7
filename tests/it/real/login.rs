//! Logging in: every connection, rotated passwords, users with few rights.

use std::sync::{Arc, Mutex};

use reslot::{Client, Credentials, Error, Route, Value, cmd};

use super::clusters::{SOON, addr, builder, calm, key_in, moving, slot_of};
use crate::local_cluster::{LocalCluster, poll_until};

/// Makes a user on all nodes.
fn set_user(cluster: &LocalCluster, name: &str, rules: &[&str]) {
    for node in cluster.running() {
        let args = [&["ACL", "SETUSER", name, "reset", "on"], rules].concat();
        let reply = cluster.command(node, &args);
        assert!(reply.is_ok(), "{reply:?}");
    }
}

fn login(cluster: &LocalCluster, user: &str, password: &str) -> reslot::Result<Client> {
    builder(cluster).username(user).password(password).connect()
}

#[test]
fn learned_nodes_and_redirect_targets_are_logged_in_to() {
    let cluster = moving();
    set_user(&cluster, "app", &[">secret", "~*", "&*", "+@all"]);
    let seed = cluster.addr(0).to_string();
    let client = Client::builder()
        .seed(seed)
        .username("app")
        .password("secret");
    let client = client.connect().unwrap();
    let who: Vec<String> = client
        .query(cmd("ACL").arg("WHOAMI").route(Route::AllPrimaries))
        .unwrap();
    assert_eq!(who, ["app", "app", "app"]);
    // The target of an ASK, which no map names.
    let slot = slot_of(0, 50);
    let unlisted = super::clusters::UNLISTED;
    let migration = cluster.begin_move(slot, 0, unlisted);
    client.set(key_in(slot, "login"), "there").unwrap();
    let list = cluster.command(unlisted, &["CLIENT", "LIST"]).text();
    assert!(list.contains("user=app"), "{list}");
    assert_eq!(client.del(key_in(slot, "login")), Ok(true));
    migration.cancel();
}

#[test]
fn a_rotated_password_is_used_by_the_next_connection() {
    let cluster = calm();
    set_user(cluster, "rotated", &[">old", "~login:*", "+@all"]);
    let password = Arc::new(Mutex::new("old"));
    let provided = Arc::clone(&password);
    let provide = move |_: &_| Credentials::user("rotated", *provided.lock().unwrap());
    let client = builder(cluster).credentials(provide).connect().unwrap();
    let fixed = login(cluster, "rotated", "old").unwrap();
    let keys: Vec<String> = (0..3)
        .map(|node| key_in(slot_of(node, 3), "login:"))
        .collect();
    let touch = |client: &Client| keys.iter().try_for_each(|key| client.set(key, 1).map(drop));
    touch(&client).unwrap();
    touch(&fixed).unwrap();

    *password.lock().unwrap() = "new";
    set_user(cluster, "rotated", &[">new", "~login:*", "+@all"]);
    // Connections that are there stay.
    touch(&client).unwrap();
    for node in 0..3 {
        cluster.command(node, &["CLIENT", "KILL", "USER", "rotated"]);
    }
    poll_until(SOON, "the new password to be used", || {
        touch(&client).map_err(|error| error.to_string())
    });
    // Who still has the old one hears why it cannot connect.
    let error = login(cluster, "rotated", "old").unwrap_err();
    let Error::Connect(reasons) = &error else {
        panic!("{error:?}")
    };
    assert!(
        reasons.iter().all(|reason| reason.contains("WRONGPASS")),
        "{error}"
    );
    let error = fixed.query::<Value>(cmd("SET").arg((&keys[0], 2)).timeout(SOON / 20));
    assert!(error.is_err(), "{error:?}");
}

#[test]
fn no_permission_reaches_the_user() {
    let cluster = calm();
    set_user(
        cluster,
        "narrow",
        &[">pw", "~login:*", "+get", "+set", "+hello", "+ping"],
    );
    let error = login(cluster, "narrow", "pw").unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("NOPERM") && text.contains("cluster"),
        "{text}"
    );

    set_user(
        cluster,
        "reader",
        &[">pw", "~login:*", "+get", "+hello", "+cluster|slots"],
    );
    let client = login(cluster, "reader", "pw").unwrap();
    assert_eq!(client.get("login:x"), Ok(None::<String>));
    let error = client.set("login:x", 1).unwrap_err();
    assert_eq!(error.code(), Some("NOPERM"), "{error}");
    let error = client.get::<String>("other:x").unwrap_err();
    assert_eq!(error.code(), Some("NOPERM"), "{error}");
    assert_eq!(error.certainty(), reslot::Certainty::Refused, "{error}");
    let mut pipeline = client.pipeline();
    pipeline
        .add(cmd("GET").arg("login:x"))
        .add(cmd("GET").arg("other:x"));
    pipeline.add(cmd("GET").arg("login:x"));
    let results = pipeline.execute().unwrap();
    let good: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(good, [true, false, true]);
}

#[test]
fn without_permission_for_multi_nothing_of_a_transaction_runs() {
    let cluster = calm();
    let rules = &[">pw", "~login:*", "+@all", "-@transaction"];
    set_user(cluster, "single", rules);
    let client = login(cluster, "single", "pw").unwrap();
    let add = || client.transaction::<(i64,)>(|t| _ = t.add(cmd("INCR").arg("login:n")));
    let error = add().unwrap_err();
    assert_eq!(error.code(), Some("NOPERM"), "{error}");
    assert_eq!(error.certainty(), reslot::Certainty::NotSent, "{error}");
    assert_eq!(client.get("login:n"), Ok(None::<i64>));
    set_user(cluster, "single", &[">pw", "~login:*", "+@all"]);
    assert_eq!(add(), Ok((1,)));
}

/// A user that may not say ASKING: what is redirected by ASK fails with the server's own words.
#[test]
fn no_permission_for_asking_is_no_loop() {
    let cluster = moving();
    set_user(&cluster, "silent", &[">pw", "~*", "+@all", "-asking"]);
    let client = login(&cluster, "silent", "pw").unwrap();
    let slot = slot_of(0, 51);
    let migration = cluster.begin_move(slot, 0, 1);
    let get = cmd("GET").arg(key_in(slot, "login")).timeout(SOON);
    let error = client.query::<Value>(get).unwrap_err();
    assert!(error.failure().unwrap().attempts() < 40, "{error}");
    let info = cmd("PING").route(Route::Node(addr(&cluster, 1)));
    assert_eq!(client.query::<String>(info).unwrap(), "PONG");
    migration.cancel();
}
