//! The page of the command interface, used in a real browser.

mod browser;

use mongodb::bson::doc;
use serde_json::json;

use crate::harness::{DEMO, Home, both, in_both, number, status_of, until, until_some};

use browser::Browser;

/// The field of a queue in the table, by its accessible name.
fn field(label: &str) -> String {
    format!("[aria-label='{label}']")
}

#[test]
fn queues_are_shown_with_their_counts_and_a_limit_is_edited_in_place() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue_with("mail", doc! {home.dialect.limit(): 3});
        for status in [-2, -2, 1, 2, 2, -6] {
            home.task(queue, status);
        }
        let browser = Browser::start();
        browser.open(&dci.url());
        browser.sees("#database", home.mongo.name());
        let cell = |at: u8| format!("tr[data-queue=mail] td:nth-child({at})");
        browser.sees(&cell(4), "2");
        browser.sees(&cell(5), "0");
        browser.sees(&cell(6), "3");
        browser.sees(&cell(7), "1");
        browser.enter(&field("Limit of mail"), "7");
        let limit = || number(home.mongo.get("queues", queue).get(home.dialect.limit()));
        until("the limit is saved", || limit() == Some(7));
        browser.enter(&field("Limit of mail"), "");
        until("the limit is taken away", || limit().is_none());
    }
}

/// Holds back the page's changes, and its requests for the paths that the test names, until the
/// test releases them, and counts what the page has not processed: it processes an answer before
/// the timer fires.
const HOLD: &str = "window.held = [];
    window.open = 0;
    window.knows = 0;
    const kept = arguments[0] ?? [];
    const real = window.fetch;
    window.fetch = async (path, asked) => {
        window.open += 1;
        if (asked.method === 'POST' || kept.includes(path)) {
            await new Promise((go) => window.held.push(go));
        }
        const answer = await real(path, asked);
        const text = await answer.text();
        setTimeout(() => {
            window.open -= 1;
            if (asked.method === 'POST') window.knows += 1;
        });
        return { status: answer.status, ok: answer.ok, text: async () => text };
    };";

/// A user who types the second value before the first one is saved.
const CHANGE: &str = "for (const value of arguments[1]) {
        const field = document.querySelector(arguments[0]);
        field.value = value;
        field.dispatchEvent(new Event('change'));
    }";

#[test]
fn of_two_changes_of_a_field_the_last_one_holds() {
    let home = Home::released();
    let dci = home.dci();
    let queue = home.queue_with("mail", doc! {"threads": 3});
    let browser = Browser::start();
    browser.open(&dci.url());
    browser.sees("main", "1 queue");
    browser.script(HOLD, &[]);
    browser.script(CHANGE, &[json!(field("Limit of mail")), json!(["5", "6"])]);
    // The second one is not sent before the first one is answered, so it cannot overtake it.
    assert_eq!(browser.script("return window.held.length", &[]), json!(1));
    let limit = || number(home.mongo.get("queues", queue).get("threads"));
    browser.script("window.held.shift()()", &[]);
    until("the first change is saved", || limit() == Some(5));
    until("the second change is sent", || {
        browser.script("return window.held.length", &[]) == json!(1)
    });
    browser.script("window.held.shift()()", &[]);
    until("the second change is saved", || limit() == Some(6));
}

#[test]
fn a_saved_field_does_not_take_away_what_is_typed_into_another() {
    let home = Home::released();
    let dci = home.dci();
    let first = home.queue_with("first", doc! {"threads": 3});
    let second = home.queue_with("second", doc! {"threads": null});
    let browser = Browser::start();
    browser.open(&dci.url());
    browser.sees("main", "2 queues");
    browser.script(HOLD, &[]);
    browser.script(CHANGE, &[json!(field("Limit of first")), json!(["5"])]);
    let other = field("Limit of second");
    browser.add_text(&other, "7");
    browser.script("window.held.shift()()", &[]);
    let limit = |queue| number(home.mongo.get("queues", queue).get("threads"));
    until("the first change is saved", || limit(first) == Some(5));
    until("the page has done what it does then", || {
        browser.script("return window.open", &[]) == json!(0)
    });
    browser.add_text(&other, "\u{e007}");
    until("the second change is sent", || {
        browser.script("return window.held.length", &[]) == json!(1)
    });
    browser.script("window.held.shift()()", &[]);
    until("the second change is saved", || limit(second) == Some(7));
}

#[test]
fn what_is_chosen_with_keys_is_saved_when_the_list_is_left() {
    let home = Home::released();
    let dci = home.dci_with(json!({"plugins": {DEMO: {"program": "/bin/true"}, "/bin/true": {}}}));
    let queue = home.queue("mail");
    let browser = Browser::start();
    browser.open(&dci.url());
    browser.sees("main", "1 queue");
    browser.script(HOLD, &[]);
    // The arrows change the value at each press, and the next one is not final yet.
    let press = "const list = document.querySelector(arguments[0]);
        list.focus();
        list.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowUp' }));
        list.value = '/bin/true';
        list.dispatchEvent(new Event('change'));
        const held = window.held.length;
        list.blur();
        return held;";
    assert_eq!(browser.script(press, &[json!(field("Plugin of mail"))]), json!(0));
    until("it is sent", || browser.script("return window.held.length", &[]) == json!(1));
    browser.script("window.held.shift()()", &[]);
    until("it is saved", || {
        home.mongo.get("queues", queue).get_str("plugin").unwrap() == "/bin/true"
    });
}

/// The answer for a view that was left arrives when the next one is shown.
#[test]
fn a_view_goes_on_being_refreshed_whatever_was_looked_at_before_it() {
    let home = Home::released();
    let dci = home.dci_with(json!({"dashboard": {"refresh_ms": 1000}}));
    let queue = home.queue("mail");
    let task = home.task(queue, 1);
    let browser = Browser::start();
    browser.open(&format!("{}/#/nodes", dci.url()));
    browser.sees("main", "Not running");
    browser.script(HOLD, &[json!([format!("/tasks/{task}"), "/queues"])]);
    let held = |count: usize| {
        until("the page asks", || browser.script("return window.held.length", &[]) == json!(count));
    };
    browser.script(&format!("location.hash = '#/task/{task}'"), &[]);
    held(1);
    browser.script("location.hash = '#/queues'", &[]);
    held(2);
    browser.script("window.held.shift()()", &[]);
    until("the task has come", || browser.script("return window.open", &[]) == json!(1));
    browser.script("window.held.shift()()", &[]);
    browser.sees("main", "1 queue");
    held(1);
    home.queue("more");
    browser.script("window.held.shift()()", &[]);
    browser.sees("main", "2 queues");
}

/// A user who opens another view while a change is in progress gets there.
#[test]
fn a_change_that_is_saved_does_not_take_away_the_view_that_was_gone_to() {
    let home = Home::released();
    let dci = home.dci();
    let queue = home.queue_with("mail", doc! {"threads": 3});
    let browser = Browser::start();
    browser.open(&dci.url());
    browser.sees("main", "1 queue");
    browser.script(HOLD, &[json!(["/nodes"])]);
    let label = field("Limit of mail");
    browser.script("document.querySelector(arguments[0]).focus()", &[json!(label)]);
    browser.script(CHANGE, &[json!(label), json!(["5"])]);
    let held = |count: usize| {
        until("the page asks", || browser.script("return window.held.length", &[]) == json!(count));
    };
    held(1);
    browser.script("location.hash = '#/nodes'", &[]);
    held(2);
    browser.script("window.held.shift()()", &[]);
    let limit = || number(home.mongo.get("queues", queue).get("threads"));
    until("the change is saved", || limit() == Some(5));
    until("the page knows it", || browser.script("return window.knows", &[]) == json!(1));
    let rest = "while (window.held.length) window.held.shift()();
        return document.getElementById('main').textContent";
    until("the nodes are there", || {
        browser.script(rest, &[]).as_str().is_some_and(|text| text.contains("Not running"))
    });
}

#[test]
fn a_dialog_sends_once_however_often_it_is_sent() {
    let home = Home::released();
    let dci = home.dci();
    home.queue("mail");
    let browser = Browser::start();
    browser.open(&format!("{}/#/tasks", dci.url()));
    browser.click("#search button[type=button]");
    browser.script(HOLD, &[]);
    let twice = "const form = document.querySelector('dialog form');
        form.requestSubmit();
        form.requestSubmit();";
    browser.script(twice, &[]);
    until("it is sent", || browser.script("return window.held.length", &[]) == json!(1));
    browser.script("window.held.shift()()", &[]);
    until("the dialog is gone", || browser.text("dialog").is_none());
    assert_eq!(browser.script("return window.held.length", &[]), json!(0));
    assert_eq!(home.mongo.all("tasks", doc! {}).len(), 1);
}

#[test]
fn a_change_that_is_refused_says_why_and_changes_nothing() {
    let home = Home::released();
    let dci = home.dci();
    let (first, _) = (home.queue("first"), home.queue("second"));
    home.mongo.index("queues", doc! {"name": 1}, true);
    let browser = Browser::start();
    browser.open(&dci.url());
    browser.enter(&field("Name of first"), "second");
    browser.sees("#trouble", "(400)");
    assert_eq!(home.mongo.get("queues", first).get_str("name").unwrap(), "first");
}

#[test]
fn a_queue_is_made_and_deleted_with_its_tasks() {
    for home in both() {
        let dci = home.dci();
        let browser = Browser::start();
        browser.open(&dci.url());
        browser.click("main button.main");
        browser.type_text("dialog [name=name]", "fresh");
        browser.type_text("dialog [name=threads]", "2");
        browser.choose("dialog [name=sort]", "fifo");
        browser.click("dialog button[type=submit]");
        browser.sees("main", "1 queue");
        let made = home.mongo.one("queues", doc! {"name": "fresh"}).unwrap();
        assert_eq!(made.get_str(home.dialect.plugin()).unwrap(), DEMO);
        assert_eq!(number(made.get(home.dialect.limit())), Some(2));
        assert_eq!(made.get_str("sort").unwrap(), "fifo");

        let task = home.task(made.get_object_id("_id").unwrap(), -2);
        browser.click("tr[data-queue=fresh] button");
        browser.click("dialog button[type=submit]");
        browser.sees("dialog [role=alert]", "(4");
        browser.choose("dialog [name=tasks]", "delete them too");
        browser.click("dialog button[type=submit]");
        browser.sees("main", "There is no queue yet.");
        assert_eq!(home.mongo.one("tasks", doc! {"_id": task}), None);
    }
}

#[test]
fn nodes_that_live_and_nodes_that_do_not_stand_apart_and_a_limit_is_edited() {
    in_both(|home| {
        let dci = home.dci();
        let _den = home.den("alive");
        let long_ago = mongodb::bson::DateTime::from_millis(1_500_000_000_000);
        let entry = doc! {"node": "gone", "timestamp": long_ago};
        let gone = home.mongo.insert("nodes", entry);
        let browser = Browser::start();
        browser.open(&format!("{}/#/nodes", dci.url()));
        browser.sees("#live", "alive");
        browser.sees("#dead", "gone");
        assert!(!browser.text("#live").unwrap().contains("gone"));
        browser.enter(&field("Limit of gone"), "4");
        let limit = || number(home.mongo.get("nodes", gone).get("maxthreads"));
        until("the limit is saved", || limit() == Some(4));
    });
}

#[test]
fn tasks_are_searched_and_paged_and_shown_with_their_output() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("mail");
        let output = doc! {"stdout": "it <b>went</b> well", "stderr": "a warning"};
        let done = home.task_with(queue, 1, output);
        for _ in 0..22 {
            home.task(queue, -2);
        }
        let browser = Browser::start();
        browser.open(&format!("{}/#/tasks", dci.url()));
        browser.choose("#search [name=queue]", "mail");
        browser.click("#search button[type=submit]");
        browser.sees("main", "1 to 20");
        browser.click("main .row:last-child button:last-child");
        browser.sees("main", "21 to 23");
        browser.choose("#search [name=status]", "succeeded (1)");
        browser.click("#search button[type=submit]");
        browser.sees("main", "1 to 1");
        // No index covers a status alone, so all queues are queried.
        browser.choose("#search [name=queue]", "any");
        browser.click("#search button[type=submit]");
        browser.sees("main", "1 to 1");
        browser.click(&format!("a[href='#/task/{done}']"));
        browser.sees("#stdout", "it <b>went</b> well");
        browser.sees("#stderr", "a warning");
        browser.sees("#params", "commands");
        browser.sees("#status", "succeeded");
    }
}

#[test]
fn a_task_is_made_run_by_a_node_and_tried_again_from_the_page() {
    in_both(|home| {
        let plugin = home.ok();
        let queue = home.line(&plugin, 1);
        let dci = home.dci();
        let _den = home.den("worker");
        let browser = Browser::start();
        browser.open(&format!("{}/#/tasks?queue={queue}", dci.url()));
        browser.click("#search button[type=button]");
        browser.type_text("dialog [name=params]", r#"{"user": "ashley"}"#);
        browser.click("dialog button[type=submit]");
        let made = until_some("the task is there", || home.mongo.one("tasks", doc! {}));
        let id = made.get_object_id("_id").unwrap();
        home.reaches(id, 1);
        browser.open(&format!("{}/#/task/{id}", dci.url()));
        browser.sees("#stdout", "out");
        home.mongo.set("queues", queue, doc! {home.dialect.limit(): 0});
        browser.click("main .row button:last-child");
        browser.sees("#status", "queued");
        assert_eq!(status_of(&home.mongo.get("tasks", id)), -2);
        browser.click("main .row button:first-child");
        browser.sees("#status", "cancelled");
    });
}

#[test]
fn long_output_is_shown_when_it_is_asked_for() {
    let home = Home::released();
    let plugin = home.ok();
    let queue = home.line(&plugin, 1);
    let _den = home.den_with("worker", json!({"gfs": true}));
    let task = home.add(queue, 1)[0];
    assert!(home.reaches(task, 1).get_object_id("stdout").is_ok());
    let dci = home.dci();
    let browser = Browser::start();
    browser.open(&format!("{}/#/task/{task}", dci.url()));
    browser.click("#stdout a");
    browser.sees("#stdout pre", "out");
}

#[test]
fn who_is_not_signed_in_is_asked_and_then_sees_everything() {
    let home = Home::released();
    home.queue("secret-queue");
    let dci =
        home.dci_with(json!({"users": {"ashley": "pässword"}, "tokens": ["t0k€n-of-a-test"]}));
    let browser = Browser::start();
    browser.open(&dci.url());
    browser.type_text("#sign [name=name]", "ashley");
    browser.type_text("#sign [name=secret]", "wrong");
    browser.click("#sign button");
    browser.sees("#trouble", "wrong");
    browser.type_text("#sign [name=secret]", "pässword");
    browser.click("#sign button");
    browser.sees("main", "1 queue");
    browser.click("#leave");
    browser.sees("main", "Sign in");
    browser.type_text("#sign [name=secret]", "t0k€n-of-a-test");
    browser.click("#sign button");
    browser.sees("main", "1 queue");
}

#[test]
fn an_interface_that_went_away_is_told_and_the_page_goes_on_when_it_is_back() {
    let home = Home::released();
    home.queue("mail");
    let mut config = home.config();
    config["dashboard"] = json!({"refresh_ms": 1000});
    let mut dci = home.dci_of(&config);
    let browser = Browser::start();
    browser.open(&dci.url());
    browser.sees("main", "1 queue");
    dci.program.kill();
    browser.sees("#trouble", "does not answer");
    browser.click("nav a[href='#/nodes']");
    until("queues are not shown as nodes", || browser.text("main").unwrap().is_empty());
    home.queue("more");
    let _again = home.dci_of(&config);
    browser.sees("main", "Not running");
    until("the trouble is over", || browser.text("#trouble:not([hidden])").is_none());
    browser.click("nav a[href='#/queues']");
    browser.sees("main", "2 queues");
}
