//! Files that are given away beside the program, for packages, containers and Kubernetes. The fear: they name a setting
//! that the server does not have, or a file that is not there, and the first to see it is an operator.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use corq::config::Config;
use serde_json::Value as Json;

use super::tidy::ROOT;

fn packaging() -> PathBuf {
    Path::new(ROOT).join("packaging")
}

fn read(path: &str) -> String {
    let path = packaging().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The flags of `corq serve`.
fn flags() -> Command {
    Config::augment_args(Command::new("serve"))
}

/// The settings by their names in environment variables.
fn settings() -> BTreeSet<String> {
    let name = |flag: &str| flag.replace('-', "_").to_uppercase();
    let flags = flags();
    let names: BTreeSet<String> =
        flags.get_arguments().filter_map(|it| it.get_long()).map(name).collect();
    assert!(names.len() > 40 && names.contains("DATA_PATH"), "{names:?}");
    names
}

/// Documents of a file; templates have none.
fn documents(text: &str) -> Vec<Json> {
    let pieces = text.split("\n---\n").map(|piece| piece.trim_start_matches("---\n"));
    let has_more =
        |piece: &&str| piece.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#'));
    pieces
        .filter(has_more)
        .map(|piece| {
            serde_saphyr::from_str(piece).unwrap_or_else(|error| panic!("{error}\n{piece}"))
        })
        .collect()
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn every_data_file_of_the_packaging_can_be_read() {
    let mut all = Vec::new();
    files(&packaging(), &mut all);
    let mut read = 0;
    for path in
        all.iter().filter(|path| !path.components().any(|part| part.as_os_str() == "templates"))
    {
        let text = fs::read_to_string(path).unwrap();
        match path.extension().and_then(|suffix| suffix.to_str()) {
            Some("json") => drop(
                serde_json::from_str::<Json>(&text)
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display())),
            ),
            Some("yaml" | "yml") => assert!(!documents(&text).is_empty(), "{}", path.display()),
            _ => continue,
        }
        read += 1;
    }
    assert!(read >= 10, "{read} files were read");
}

/// `#name = value` and `name = value`, without quotes and the underscores within numbers.
fn assignments(text: &str) -> Vec<(String, String)> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let pairs = text.lines().filter_map(|line| line.trim_start_matches('#').split_once(" = "));
    let plain = |value: &str| match value.strip_prefix('"') {
        Some(text) => text.trim_end_matches('"').to_owned(),
        None => value.replace('_', ""),
    };
    pairs
        .filter(|(name, _)| is_name(name))
        .map(|(name, value)| (name.to_owned(), plain(value)))
        .collect()
}

#[test]
fn the_settings_file_of_the_packages_has_settings_with_values_that_they_take() {
    let pairs = assignments(&read("corq.toml"));
    assert!(pairs.len() >= 10, "{pairs:?}");
    for (name, value) in &pairs {
        let flag = format!("--{}={value}", name.replace('_', "-"));
        let parsed = flags().try_get_matches_from(["serve", &flag]);
        assert!(
            parsed.is_ok(),
            "{name} = {value}: {}",
            parsed.err().map(|error| error.to_string()).unwrap_or_default()
        );
    }
    assert!(
        flags().try_get_matches_from(["serve", "--shard=2"]).is_err(),
        "a name that is none is seen"
    );
}

#[test]
fn containers_and_manifests_set_settings_that_the_server_has() {
    let settings = settings();
    let known = |name: &str, place: &str| assert!(settings.contains(name), "{place} sets {name}");
    let dockerfile = read("container/Dockerfile");
    let (_, set) = dockerfile.split_once("\nENV ").unwrap();
    let set = set.split("\nUSER").next().unwrap().replace('\\', " ");
    let names: Vec<&str> =
        set.split_whitespace().map(|pair| pair.split('=').next().unwrap()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for name in names {
        known(name, "the image");
    }

    let compose = &documents(&read("container/compose.yaml"))[0];
    let environment = compose["services"]["corq"]["environment"].as_object().unwrap();
    for name in environment.keys() {
        known(name, "compose.yaml");
    }
    let fleet = &documents(&read("container/fleet.yaml"))[0];
    for name in fleet["x-settings"].as_object().unwrap().keys() {
        known(name, "fleet.yaml");
    }

    let workload = documents(&read("kubernetes/corq.yaml"))
        .into_iter()
        .find(|it| it["kind"] == "StatefulSet")
        .unwrap();
    let variables =
        workload["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    assert!(variables.len() >= 2, "{variables:?}");
    for variable in variables {
        known(variable["name"].as_str().unwrap(), "the manifest");
    }

    // Settings that the chart makes itself, and so does not take.
    let schema: Json = serde_json::from_str(&read("helm/corq/values.schema.json")).unwrap();
    let own = schema["properties"]["settings"]["propertyNames"]["not"]["enum"].as_array().unwrap();
    for name in own {
        known(name.as_str().unwrap(), "values.schema.json");
    }
    let values = &documents(&read("helm/everything.yaml"))[0];
    for name in values["settings"].as_object().unwrap().keys() {
        known(name, "everything.yaml");
    }
}

#[test]
fn the_seccomp_profile_allows_io_uring_and_nothing_that_rules_a_machine() {
    let profile: Json = serde_json::from_str(&read("container/seccomp.json")).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let mut allowed = BTreeSet::new();
    for rule in profile["syscalls"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|rule| rule["action"] == "SCMP_ACT_ALLOW")
    {
        let is_bound = rule["args"].is_array();
        for name in rule["names"].as_array().unwrap() {
            let name = name.as_str().unwrap();
            assert!(allowed.insert(name) || is_bound, "{name} is there twice");
        }
    }
    for name in [
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
        "sched_setaffinity",
        "fallocate",
        "accept4",
        "clone",
    ] {
        assert!(allowed.contains(name), "{name} is needed");
    }
    for name in [
        "mount",
        "umount2",
        "unshare",
        "setns",
        "pivot_root",
        "ptrace",
        "bpf",
        "perf_event_open",
        "init_module",
        "kexec_load",
        "keyctl",
        "reboot",
        "swapon",
        "process_vm_writev",
        "open_by_handle_at",
        "userfaultfd",
    ] {
        assert!(!allowed.contains(name), "{name} is allowed");
    }
}

#[test]
fn what_the_compose_file_mounts_from_beside_it_is_there() {
    let compose = &documents(&read("container/compose.yaml"))[0];
    let mut mounted = 0;
    for service in compose["services"].as_object().unwrap().values() {
        let volumes = service["volumes"].as_array().into_iter().flatten().filter_map(Json::as_str);
        for place in volumes.filter_map(|volume| volume.strip_prefix("./")?.split(':').next()) {
            assert!(packaging().join("container").join(place).exists(), "{place}");
            mounted += 1;
        }
        for option in
            service["security_opt"].as_array().into_iter().flatten().filter_map(Json::as_str)
        {
            if let Some(place) = option.strip_prefix("seccomp=./") {
                assert!(packaging().join("container").join(place).exists(), "{place}");
                mounted += 1;
            }
        }
    }
    assert!(mounted >= 3, "{mounted} places");
}

#[test]
fn what_prometheus_is_given_scrapes_the_job_that_the_alerts_name_and_has_the_alerts() {
    assert!(packaging().join("prometheus/alerts.yml").exists());
    for (path, target, alerts) in [
        ("prometheus/prometheus.yml", "127.0.0.1:6790", "alerts.yml"),
        ("container/prometheus.yml", "corq:6790", "/etc/prometheus/rules/alerts.yml"),
    ] {
        let given = &documents(&read(path))[0];
        assert_eq!(given["rule_files"], Json::from(vec![alerts]), "{path}");
        let scrape = &given["scrape_configs"][0];
        assert_eq!(scrape["job_name"], "corq", "{path}");
        assert_eq!(scrape["metrics_path"], "/prometheus", "{path}");
        assert_eq!(scrape["static_configs"][0]["targets"], Json::from(vec![target]), "{path}");
    }
}

#[test]
fn the_chart_and_the_image_are_of_this_version_and_its_rust() {
    let chart = &documents(&read("helm/corq/Chart.yaml"))[0];
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        (chart["version"].as_str(), chart["appVersion"].as_str()),
        (Some(version), Some(version))
    );
    assert!(read("kubernetes/corq.yaml").contains(&format!("localhost/corq:{version}\"")));
    let rust = env!("CARGO_PKG_RUST_VERSION");
    assert!(read("container/Dockerfile").contains(&format!("/rust:{rust}-")), "Rust {rust}");
}

#[test]
fn every_library_of_the_dashboard_has_its_licence_here() {
    let lock = fs::read_to_string(Path::new(ROOT).join("web/package-lock.json")).unwrap();
    let lock: Json = serde_json::from_str(&lock).unwrap();
    let mut libraries = 0;
    for (place, package) in lock["packages"].as_object().unwrap() {
        let Some(name) = place
            .strip_prefix("node_modules/")
            .filter(|_| package["dev"].is_null() && package["optional"].is_null())
        else {
            continue;
        };
        let text = read(&format!("licences/{}/LICENSE", name.replace('/', "+")));
        assert!(text.contains("Copyright"), "{name}");
        libraries += 1;
    }
    assert!(libraries >= 3, "{libraries} libraries");
}
