//! A socket, its buffers and the protocol spoken over it.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::protocol::{Protocol, Wire};

const INPUT_BYTES: usize = 256 << 10;

pub struct Connection {
    pub socket: TcpStream,
    pub protocol: Box<dyn Protocol>,
    pub wire: Wire,
    input: Vec<u8>,
    filled: usize,
    written: usize,
    /// The last send left bytes behind.
    pub wants_write: bool,
}

impl Connection {
    pub fn new(port: u16, protocol: Box<dyn Protocol>) -> Result<Self, String> {
        let open = || {
            let socket = TcpStream::connect(("127.0.0.1", port))?;
            socket.set_nodelay(true)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = open().map_err(|error: std::io::Error| format!("port {port}: {error}"))?;
        Ok(Self {
            socket,
            protocol,
            wire: Wire::default(),
            input: vec![0; INPUT_BYTES],
            filled: 0,
            written: 0,
            wants_write: false,
        })
    }

    /// Reads once; what is whole becomes events.
    pub fn receive(&mut self) -> Result<(), String> {
        if self.filled == self.input.len() {
            self.input.resize(self.filled * 2, 0);
        }
        match self.socket.read(&mut self.input[self.filled..]) {
            Ok(0) => return Err("the server closed the connection".to_owned()),
            Ok(count) => self.filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(format!("read: {error}")),
        }
        let done = self.protocol.read(&self.input[..self.filled], &mut self.wire)?;
        self.input.copy_within(done..self.filled, 0);
        self.filled -= done;
        Ok(())
    }

    /// Sends what the socket takes; answers whether something is left.
    pub fn send(&mut self) -> Result<bool, String> {
        while self.written < self.wire.out.len() {
            match self.socket.write(&self.wire.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(format!("write: {error}")),
            }
        }
        self.wire.out.clear();
        self.written = 0;
        Ok(false)
    }
}
