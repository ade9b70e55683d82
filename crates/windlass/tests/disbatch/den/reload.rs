//! The configuration file while a node runs: a seed's node reads it again in every pass, a released
//! one only at start.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Home, until};

/// In one step, so that no program reads half of it.
fn rewrite(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

fn with(config: &Value, key: &str, value: Value) -> Value {
    let mut config = config.clone();
    config[key] = value;
    config
}

#[test]
fn a_seed_node_reads_its_file_again_when_it_has_changed() {
    let home = Home::seed();
    let plugin = home.ok();
    let (one, two) = (home.line(&plugin, 5), home.line(&plugin, 5));
    let config = with(&home.den_config("one"), "activequeues", json!([one.to_hex()]));
    let file = home.write(&config);
    let mut den = home.den_of(&file);
    let tasks = [one, two].map(|queue| home.add(queue, 1)[0]);
    home.reaches(tasks[0], 1);
    home.passes("one", 1);
    assert_eq!(home.status(tasks[1]), -2);
    let changed = with(&config, "activequeues", json!([two.to_hex()]));
    rewrite(&file, &changed.to_string());
    home.reaches(tasks[1], 1);
    let left = home.add(one, 1)[0];
    home.passes("one", 1);
    assert_eq!(home.status(left), -2);
    assert!(den.alive());
}

#[test]
fn a_file_that_cannot_be_read_any_more_is_told_and_the_former_settings_stay() {
    let home = Home::seed();
    let plugin = home.ok();
    let (served, other) = (home.line(&plugin, 5), home.line(&plugin, 5));
    let config = with(&home.den_config("one"), "activequeues", json!([served.to_hex()]));
    let file = home.write(&config);
    let mut den = home.den_of(&file);
    home.entered("one", &mut den);
    for wrong in ["{\"mongohost\": ", "[]", &with(&config, "gfs", json!(7)).to_string()] {
        let told = den.console().len();
        rewrite(&file, wrong);
        until("it is told", || den.console()[told..].contains(file.to_str().unwrap()));
        let (task, left) = (home.add(served, 1)[0], home.add(other, 1)[0]);
        home.reaches(task, 1);
        home.passes("one", 1);
        assert_eq!(home.status(left), -2);
    }
    assert!(den.alive());
}

/// A node's identity, its database and its files do not change while it runs.
#[test]
fn another_name_or_place_in_the_file_needs_a_restart() {
    let home = Home::seed();
    let queue = home.line(&home.ok(), 5);
    let config = home.den_config("one");
    let file = home.write(&config);
    let mut den = home.den_of(&file);
    home.entered("one", &mut den);
    rewrite(&file, &with(&config, "node", json!("other")).to_string());
    until("it is told", || den.console().contains("restart"));
    let told = den.console().len();
    rewrite(&file, &with(&config, "temp_dir", json!(home.path("elsewhere"))).to_string());
    until("it is told", || den.console()[told..].contains("restart"));
    let task = home.add(queue, 1)[0];
    home.reaches(task, 1);
    home.passes("one", 1);
    assert!(home.mongo.one("nodes", mongodb::bson::doc! {"node": "other"}).is_none());
}

#[test]
fn a_released_node_reads_its_file_once() {
    let home = Home::released();
    let queue = home.line(&home.ok(), 5);
    let config = home.den_config("one");
    let file = home.write(&config);
    let mut den = home.den_of(&file);
    home.entered("one", &mut den);
    let changed = with(&config, "ignorequeues", json!([queue.to_hex()]));
    rewrite(&file, &changed.to_string());
    home.passes("one", 1);
    let task = home.add(queue, 1)[0];
    home.reaches(task, 1);
    assert!(den.alive());
}
