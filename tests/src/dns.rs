//! A name server that lies as a test wants: what it answers is decided per question, so that two questions about one
//! name can have two answers. UDP, and TCP on the same port for answers that were cut short. Ends with the value.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;

/// Ports tried until one is free for both protocols.
const PORTS_TRIED_MAX: usize = 20;
const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
/// Answer, recursion wanted and available.
const FLAGS: u16 = 0x8180;
const CUT_SHORT: u16 = 0x0200;

type Script = dyn Fn(&Question) -> Reply + Send + Sync;

pub struct NameServer {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Question>>>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Debug, Clone)]
pub struct Question {
    /// Lower case, without a dot at the end.
    pub name: String,
    pub is_ipv6: bool,
    /// The number of earlier questions of this type, about any name.
    pub number: usize,
}

#[derive(Debug, Clone)]
pub enum Reply {
    /// Those of the asked type are given; an alias before them is followed.
    Records(Vec<Record>),
    NoSuchName,
    /// The server could not find out.
    Fails,
    Silence,
    /// Nothing over UDP but that there is more; everything over TCP.
    CutShort(Vec<Record>),
    /// Bytes that are no answer.
    Garbage,
}

#[derive(Debug, Clone)]
pub enum Record {
    Address(IpAddr),
    Alias(&'static str),
}

/// Records of addresses that are written as text.
pub fn addresses(texts: &[&str]) -> Reply {
    Reply::Records(texts.iter().map(|text| record(text)).collect())
}

pub fn record(text: &str) -> Record {
    Record::Address(text.parse().unwrap_or_else(|_| panic!("{text}")))
}

struct Shared {
    script: Box<Script>,
    asked: Arc<Mutex<Vec<Question>>>,
    numbers: [AtomicUsize; 2],
    ttl: u32,
}

impl NameServer {
    /// Answers may be kept for `ttl` seconds.
    pub async fn start(ttl: u32, script: impl Fn(&Question) -> Reply + Send + Sync + 'static) -> NameServer {
        let (udp, tcp) = bind().await;
        let address = udp.local_addr().expect("it is bound");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let numbers = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let shared = Arc::new(Shared { script: Box::new(script), asked: Arc::clone(&asked), numbers, ttl });
        let tasks = [tokio::spawn(answer_udp(udp, Arc::clone(&shared))), tokio::spawn(answer_tcp(tcp, shared))];
        NameServer { address, asked, tasks }
    }

    pub fn asked(&self) -> Vec<Question> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn bind() -> (UdpSocket, TcpListener) {
    for _ in 0..PORTS_TRIED_MAX {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().expect("it is bound")).await {
            return (udp, tcp);
        }
    }
    panic!("no port was free for both protocols")
}

async fn answer_udp(socket: UdpSocket, shared: Arc<Shared>) {
    let mut packet = [0; 2048];
    while let Ok((length, from)) = socket.recv_from(&mut packet).await {
        if let Some(answer) = shared.answer(&packet[..length], false) {
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

async fn answer_tcp(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        // One connection after the other: the tests ask little over TCP.
        while let Ok(length) = stream.read_u16().await {
            let mut packet = vec![0; usize::from(length)];
            if stream.read_exact(&mut packet).await.is_err() {
                break;
            }
            let Some(answer) = shared.answer(&packet, true) else { continue };
            let mut framed = u16::try_from(answer.len()).expect("answers are short").to_be_bytes().to_vec();
            framed.extend_from_slice(&answer);
            if stream.write_all(&framed).await.is_err() {
                break;
            }
        }
    }
}

impl Shared {
    fn answer(&self, packet: &[u8], is_tcp: bool) -> Option<Vec<u8>> {
        let (name, kind, end) = read_question(packet)?;
        let is_ipv6 = kind == AAAA;
        let number = self.numbers[usize::from(is_ipv6)].fetch_add(1, Ordering::SeqCst);
        let question = Question { name: name.to_ascii_lowercase(), is_ipv6, number };
        self.asked.lock().unwrap().push(question.clone());
        let (flags, records) = match (self.script)(&question) {
            Reply::Silence => return None,
            Reply::Garbage => return Some(vec![0xff; 40]),
            Reply::NoSuchName => (FLAGS | 3, Vec::new()),
            Reply::Fails => (FLAGS | 2, Vec::new()),
            Reply::CutShort(_) if !is_tcp => (FLAGS | CUT_SHORT, Vec::new()),
            Reply::CutShort(records) | Reply::Records(records) => (FLAGS, records),
        };
        let records: Vec<Record> = if kind == A || is_ipv6 { of_kind(records, is_ipv6) } else { Vec::new() };
        Some(self.packet(&packet[..end], flags, &name, &records))
    }

    /// `asked` is the head and the question, which the answer repeats.
    fn packet(&self, asked: &[u8], flags: u16, name: &str, records: &[Record]) -> Vec<u8> {
        let mut packet = asked[..2].to_vec();
        let count = u16::try_from(records.len()).expect("few records");
        for number in [flags, 1, count, 0, 0] {
            packet.extend_from_slice(&number.to_be_bytes());
        }
        packet.extend_from_slice(&asked[12..]);
        let mut owner = name.to_owned();
        for record in records {
            let (kind, content) = match record {
                Record::Address(IpAddr::V4(address)) => (A, address.octets().to_vec()),
                Record::Address(IpAddr::V6(address)) => (AAAA, address.octets().to_vec()),
                Record::Alias(target) => (CNAME, name_bytes(target)),
            };
            packet.extend_from_slice(&name_bytes(&owner));
            packet.extend_from_slice(&kind.to_be_bytes());
            packet.extend_from_slice(&1_u16.to_be_bytes());
            packet.extend_from_slice(&self.ttl.to_be_bytes());
            packet.extend_from_slice(&u16::try_from(content.len()).expect("short").to_be_bytes());
            packet.extend_from_slice(&content);
            if let Record::Alias(target) = record {
                owner = (*target).to_owned();
            }
        }
        packet
    }
}

fn of_kind(records: Vec<Record>, is_ipv6: bool) -> Vec<Record> {
    let belongs = |record: &Record| match record {
        Record::Address(address) => address.is_ipv6() == is_ipv6,
        Record::Alias(_) => true,
    };
    records.into_iter().filter(belongs).collect()
}

/// Name, type, and where the question ends.
fn read_question(packet: &[u8]) -> Option<(String, u16, usize)> {
    let mut labels = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(packet.get(at..at + length)?).into_owned());
        at += length;
    }
    let kind = u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?);
    Some((labels.join("."), kind, at + 4))
}

fn name_bytes(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).expect("labels are short"));
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}
