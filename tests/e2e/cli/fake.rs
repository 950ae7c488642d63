//! Servers that are not corq: what the program makes of answers that the real one does not give, or
//! not on demand.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::Value as Json;

use crate::support::{decode, encode, frame};

/// A port on which one connection after the other is handed to `serve`, to the end of the test.
pub(super) fn listen(serve: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().flatten().for_each(serve));
    port
}

/// Answers every frame with what `answer` makes of it.
pub(super) fn frames(answer: impl Fn(&Json) -> Json + Send + 'static) -> u16 {
    listen(move |mut socket| {
        while let Some(request) = read(&mut socket) {
            socket.write_all(&frame(&encode(&answer(&request)))).unwrap();
        }
    })
}

fn read(socket: &mut TcpStream) -> Option<Json> {
    let mut head = [0; 4];
    socket.read_exact(&mut head).ok()?;
    let mut body = vec![0; u32::from_be_bytes(head) as usize];
    socket.read_exact(&mut body).ok()?;
    Some(decode(&rmpv::decode::read_value(&mut &body[..]).unwrap()))
}

/// The head of an HTTP request.
pub(super) fn head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && socket.read_exact(&mut byte).is_ok() {
        head.extend_from_slice(&byte);
    }
    String::from_utf8(head).unwrap()
}
