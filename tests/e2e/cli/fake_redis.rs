//! A Redis of a few commands, filled from a file that was recorded from a real one, or by the test. What a real one answers
//! is known to `tests/clients`; this one is there without an installation, and can be looked at afterwards.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use serde_json::Value as Json;

use super::fake::listen;

type Bytes = Vec<u8>;

/// The value of a key.
#[derive(Clone, Debug)]
pub(super) enum Held {
    Hash(Vec<(Bytes, Bytes)>),
    /// From the newest to the oldest.
    List(Vec<Bytes>),
    Set(Vec<Bytes>),
    /// Members and scores, the lowest score first.
    Sorted(Vec<(Bytes, f64)>),
}

pub(super) type Keys = Arc<Mutex<BTreeMap<Bytes, Held>>>;

/// Reads the keys of a recorded file.
pub(super) fn recorded(text: &str) -> Keys {
    let file: Json = serde_json::from_str(text).unwrap();
    let bytes = |value: &Json| value.as_str().unwrap().as_bytes().to_vec();
    let list = |value: &Json| value.as_array().unwrap().iter().map(bytes).collect::<Vec<_>>();
    let keys = file.as_object().unwrap().iter().filter_map(|(key, value)| {
        let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
        let held = match kind.as_str() {
            "hash" => {
                let fields = value.as_object().unwrap().iter();
                Held::Hash(
                    fields.map(|(name, value)| (name.clone().into_bytes(), bytes(value))).collect(),
                )
            }
            "list" => Held::List(list(value)),
            "set" => Held::Set(list(value)),
            "zset" => {
                let pairs = value.as_array().unwrap().iter();
                Held::Sorted(
                    pairs
                        .map(|pair| (bytes(&pair[0]), pair[1].as_str().unwrap().parse().unwrap()))
                        .collect(),
                )
            }
            _ => return None,
        };
        Some((key.clone().into_bytes(), held))
    });
    Arc::new(Mutex::new(keys.collect()))
}

/// Serves them; the port.
pub(super) fn serve(keys: Keys) -> u16 {
    listen(move |socket| {
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        let mut socket: TcpStream = socket;
        while let Some(words) = read(&mut reader) {
            let answer = answer(&mut keys.lock().unwrap(), &words);
            socket.write_all(&answer).unwrap();
        }
    })
}

fn read(from: &mut impl BufRead) -> Option<Vec<Bytes>> {
    let number = |from: &mut dyn BufRead| {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        line.trim_end().get(1..)?.parse::<usize>().ok()
    };
    let count = number(from)?;
    let word = |_| {
        let mut word = vec![0; number(from)? + 2];
        from.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        Some(word)
    };
    (0..count).map(word).collect()
}

fn bulk(bytes: &[u8]) -> Bytes {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn all<'a>(items: impl IntoIterator<Item = &'a [u8]>) -> Bytes {
    let items: Vec<Bytes> = items.into_iter().map(bulk).collect();
    [format!("*{}\r\n", items.len()).into_bytes(), items.concat()].concat()
}

fn integer(value: usize) -> Bytes {
    format!(":{value}\r\n").into_bytes()
}

fn answer(keys: &mut BTreeMap<Bytes, Held>, words: &[Bytes]) -> Bytes {
    let text = |at: usize| String::from_utf8_lossy(&words[at]).into_owned();
    let held = words.get(1).and_then(|key| keys.get(key).cloned());
    match (text(0).as_str(), held) {
        ("PING" | "SELECT" | "AUTH", _) => b"+OK\r\n".to_vec(),
        ("SMEMBERS", Some(Held::Set(members))) => all(members.iter().map(Vec::as_slice)),
        ("HGETALL", Some(Held::Hash(fields))) => {
            all(fields.iter().flat_map(|(name, value)| [name.as_slice(), value]))
        }
        ("SMEMBERS" | "HGETALL" | "LRANGE" | "ZRANGEBYSCORE", None) => b"*0\r\n".to_vec(),
        ("LLEN", Some(Held::List(items))) => integer(items.len()),
        ("ZCARD", Some(Held::Sorted(items))) => integer(items.len()),
        ("LRANGE", Some(Held::List(items))) => {
            let (from, to): (usize, usize) = (text(2).parse().unwrap(), text(3).parse().unwrap());
            let to = (to + 1).min(items.len());
            all(items[from.min(to)..to].iter().map(Vec::as_slice))
        }
        ("ZRANGEBYSCORE", Some(Held::Sorted(items))) => {
            let least = text(2).parse().unwrap_or(f64::NEG_INFINITY);
            let (skip, count): (usize, usize) =
                (text(6).parse().unwrap(), text(7).parse().unwrap());
            let page = items.iter().filter(|(_, score)| *score >= least).skip(skip).take(count);
            let flat: Vec<Bytes> = page
                .flat_map(|(member, score)| [member.clone(), score.to_string().into_bytes()])
                .collect();
            all(flat.iter().map(Vec::as_slice))
        }
        ("SCAN", _) => {
            let pattern = text(3);
            let (head, tail) = pattern.split_once('*').unwrap();
            let fits =
                |key: &&Bytes| key.starts_with(head.as_bytes()) && key.ends_with(tail.as_bytes());
            let found = all(keys.keys().filter(fits).map(Vec::as_slice));
            [b"*2\r\n$1\r\n0\r\n".to_vec(), found].concat()
        }
        ("LREM" | "ZREM", Some(_)) => {
            let member = words.last().unwrap();
            let (before, after) = match keys.get_mut(&words[1]).unwrap() {
                Held::List(items) => {
                    let before = items.len();
                    items.retain(|item| item != member);
                    (before, items.len())
                }
                Held::Sorted(items) => {
                    let before = items.len();
                    items.retain(|(item, _)| item != member);
                    (before, items.len())
                }
                other => panic!("{other:?} has no members"),
            };
            integer(before - after)
        }
        ("DEL", _) => integer(words[1..].iter().filter(|key| keys.remove(*key).is_some()).count()),
        ("EXISTS", held) => integer(usize::from(held.is_some())),
        ("HLEN" | "LLEN" | "ZCARD" | "LREM" | "ZREM", None) => integer(0),
        (other, held) => panic!("{other} of {held:?}"),
    }
}
