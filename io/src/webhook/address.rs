//! Which hosts and addresses a webhook may be posted to: the table of rules, and what is said when one
//! is broken. A client that may register a webhook makes this server send requests from where it stands,
//! which must not become a way into the network behind it. Knows no sockets and no names' addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A rule that an address or a host breaks, as it is said to people: `... is a loopback address`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule(pub &'static str);

const UNSPECIFIED: Rule = Rule("an unspecified address");
const LOOPBACK: Rule = Rule("a loopback address");
const PRIVATE: Rule = Rule("a private address");
const SHARED: Rule = Rule("an address of a carrier's network (100.64.0.0/10)");
const LINK_LOCAL: Rule = Rule("a link-local address");
const MULTICAST: Rule = Rule("a multicast address");
const RESERVED: Rule = Rule("a reserved address");
const METADATA: Rule = Rule("a cloud metadata host");
const LOCALHOST: Rule = Rule("this machine (localhost)");
const INTERNAL: Rule = Rule("an internal host (*.internal)");

/// Addresses at which clouds tell machines about themselves, whatever range they lie in.
const METADATA_V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Names for them. Those below `internal` need no entry.
const METADATA_NAMES: [&str; 6] = [
    "metadata",
    "metadata.goog",
    "instance-data",
    "metadata.tencentyun.com",
    "metadata.platformequinix.com",
    "rancher-metadata",
];

/// The IPv4 ranges that are refused, the narrower before the wider.
const RANGES_V4: [(Ipv4Addr, u32, Rule); 16] = [
    (Ipv4Addr::UNSPECIFIED, 8, UNSPECIFIED),
    (Ipv4Addr::new(10, 0, 0, 0), 8, PRIVATE),
    (Ipv4Addr::new(100, 64, 0, 0), 10, SHARED),
    (Ipv4Addr::new(127, 0, 0, 0), 8, LOOPBACK),
    (Ipv4Addr::new(169, 254, 0, 0), 16, LINK_LOCAL),
    (Ipv4Addr::new(172, 16, 0, 0), 12, PRIVATE),
    // Protocol assignments.
    (Ipv4Addr::new(192, 0, 0, 0), 24, RESERVED),
    // Documentation.
    (Ipv4Addr::new(192, 0, 2, 0), 24, RESERVED),
    // The former relays from IPv6.
    (Ipv4Addr::new(192, 88, 99, 0), 24, RESERVED),
    (Ipv4Addr::new(192, 168, 0, 0), 16, PRIVATE),
    // Measurements within a network.
    (Ipv4Addr::new(198, 18, 0, 0), 15, RESERVED),
    // Documentation.
    (Ipv4Addr::new(198, 51, 100, 0), 24, RESERVED),
    (Ipv4Addr::new(203, 0, 113, 0), 24, RESERVED),
    (Ipv4Addr::new(224, 0, 0, 0), 4, MULTICAST),
    // With the broadcast address.
    (Ipv4Addr::new(240, 0, 0, 0), 4, RESERVED),
    (Ipv4Addr::BROADCAST, 32, RESERVED),
];

/// The IPv6 ranges that are refused, besides those that carry an IPv4 address.
const RANGES_V6: [(Ipv6Addr, u32, Rule); 12] = [
    (Ipv6Addr::UNSPECIFIED, 128, UNSPECIFIED),
    (Ipv6Addr::LOCALHOST, 128, LOOPBACK),
    // Translation within a network.
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, RESERVED),
    // Discarded traffic.
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, RESERVED),
    // Tunnels, identifiers and measurements; among them Teredo, which hides an IPv4 address.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, RESERVED),
    // Documentation.
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, RESERVED),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, RESERVED),
    // Segments of routes.
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16, RESERVED),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, PRIVATE),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, LINK_LOCAL),
    // The former private range.
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, PRIVATE),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, MULTICAST),
];

/// The rule that `address` breaks, if any.
pub fn check_address(address: IpAddr) -> Option<Rule> {
    match address {
        IpAddr::V4(address) => check_v4(address),
        IpAddr::V6(address) => check_v6(address),
    }
}

fn check_v4(address: Ipv4Addr) -> Option<Rule> {
    if METADATA_V4.contains(&address) {
        return Some(METADATA);
    }
    let within = |&&(range, bits, _): &&(Ipv4Addr, u32, Rule)| {
        (address.to_bits() ^ range.to_bits()).leading_zeros() >= bits
    };
    RANGES_V4.iter().find(within).map(|(_, _, rule)| *rule)
}

fn check_v6(address: Ipv6Addr) -> Option<Rule> {
    if METADATA_V6.contains(&address) {
        return Some(METADATA);
    }
    let within = |&&(range, bits, _): &&(Ipv6Addr, u32, Rule)| {
        (address.to_bits() ^ range.to_bits()).leading_zeros() >= bits
    };
    let own = RANGES_V6.iter().find(within).map(|(_, _, rule)| *rule);
    own.or_else(|| carried(address).and_then(check_v4))
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, translated (NAT64) or
/// tunnelled (6to4).
fn carried(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    let low = Some(Ipv4Addr::from_bits(bits as u32));
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [0x64, 0xff9b, 0, 0, 0, 0, ..] => low,
        [0x2002, ..] => Some(Ipv4Addr::from_bits((bits >> 80) as u32)),
        _ => None,
    }
}

/// The rule that the name of a host breaks, if any. `name` is in lower case, as a URL has it.
pub fn check_name(name: &str) -> Option<Rule> {
    let name = name.trim_end_matches('.');
    let below = |domain: &str| {
        name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if below("localhost") {
        return Some(LOCALHOST);
    }
    if METADATA_NAMES.contains(&name) || name == "metadata.google.internal" {
        return Some(METADATA);
    }
    below("internal").then_some(INTERNAL)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_range_is_refused_from_its_first_to_its_last_address_and_no_further() {
        for (first, bits, rule) in RANGES_V4 {
            let span = u32::MAX.checked_shr(bits).unwrap_or(0);
            let (from, to) = (first.to_bits(), first.to_bits() | span);
            for inner in [from, from + span / 2, to] {
                let address = Ipv4Addr::from_bits(inner);
                let found = check_v4(address);
                assert!(found == Some(rule) || found == Some(METADATA), "{address}: {found:?}");
            }
            for outer in [from.checked_sub(1), to.checked_add(1)].into_iter().flatten() {
                let address = Ipv4Addr::from_bits(outer);
                let elsewhere = RANGES_V4.iter().any(|(other, bits, _)| {
                    (other.to_bits() ^ outer).leading_zeros() >= *bits && *other != first
                });
                assert_eq!(check_v4(address).is_some(), elsewhere, "{address}");
            }
        }
    }

    #[test]
    fn addresses_are_refused_by_the_rule_that_they_break() {
        for (address, rule) in [
            ("0.0.0.0", UNSPECIFIED),
            ("0.1.2.3", UNSPECIFIED),
            ("127.0.0.1", LOOPBACK),
            ("127.255.255.254", LOOPBACK),
            ("10.1.2.3", PRIVATE),
            ("172.16.0.1", PRIVATE),
            ("172.31.255.255", PRIVATE),
            ("192.168.1.1", PRIVATE),
            ("100.64.0.1", SHARED),
            ("169.254.1.1", LINK_LOCAL),
            ("169.254.169.254", METADATA),
            ("100.100.100.200", METADATA),
            ("168.63.129.16", METADATA),
            ("224.0.0.1", MULTICAST),
            ("255.255.255.255", RESERVED),
            ("198.19.0.1", RESERVED),
            ("::", UNSPECIFIED),
            ("::1", LOOPBACK),
            ("fc00::1", PRIVATE),
            ("fdff::1", PRIVATE),
            ("fe80::1", LINK_LOCAL),
            ("fec0::1", PRIVATE),
            ("ff02::1", MULTICAST),
            ("fd00:ec2::254", METADATA),
            ("::ffff:127.0.0.1", LOOPBACK),
            ("::ffff:169.254.169.254", METADATA),
            ("::ffff:10.0.0.1", PRIVATE),
            ("::ffff:0:10.0.0.1", PRIVATE),
            ("::127.0.0.1", LOOPBACK),
            ("64:ff9b::10.0.0.1", PRIVATE),
            ("64:ff9b:1::1", RESERVED),
            ("2002:7f00:1::1", LOOPBACK),
            ("2002:c0a8:101::", PRIVATE),
            ("2001:0:1::1", RESERVED),
            ("2001:db8::1", RESERVED),
            ("3fff::1", RESERVED),
        ] {
            assert_eq!(check_address(address.parse().unwrap()), Some(rule), "{address}");
        }
    }

    #[test]
    fn addresses_of_everybody_are_let_through() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450:4001::200e",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
        ] {
            assert_eq!(check_address(address.parse().unwrap()), None, "{address}");
        }
    }

    #[test]
    fn names_are_refused_by_the_rule_that_they_break() {
        for (name, rule) in [
            ("localhost", Some(LOCALHOST)),
            ("localhost.", Some(LOCALHOST)),
            ("a.localhost", Some(LOCALHOST)),
            ("db.internal", Some(INTERNAL)),
            ("internal", Some(INTERNAL)),
            ("db.internal.", Some(INTERNAL)),
            ("metadata.google.internal", Some(METADATA)),
            ("metadata.google.internal.", Some(METADATA)),
            ("metadata", Some(METADATA)),
            ("metadata.goog", Some(METADATA)),
            ("notlocalhost", None),
            ("myinternal", None),
            ("internal.example.com", None),
            ("localhost.example.com", None),
        ] {
            assert_eq!(check_name(name), rule, "{name}");
        }
    }
}
