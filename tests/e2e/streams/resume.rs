//! I-32: readers that are cut again and again, also by a server that dies and restarts, see every event exactly once,
//! in order, the end last.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::http::Client;
use outlast_tests::nginx::Nginx;
use outlast_tests::server::Server;
use outlast_tests::sse::{Asked, Frame, Next, Sse};
use outlast_tests::ws::{Heard, Refused, Ws};
use serde_json::json;
use tokio::task::JoinSet;

use crate::api::{make_queue, publish, receive_one, settle, text};
use crate::http_edges::configured;
use crate::streams::{all_events, assert_is_log, defer};

const JOBS: usize = 5;
pub(crate) const READERS: usize = 200;
/// Each gives three events for each job, and there are three times as many; with at most so many events per connection
/// that is more than twenty cuts.
const ROUNDS: usize = 12;
const EVENTS_PER_CONNECTION: u64 = 5;
/// All readers have the same key.
pub(crate) const ROOM: &str = "limits:\n  streams_per_key: 2000\n  connections_per_address: 5000\n";
const CUTS_MIN: usize = 20;
/// Before asking a server again that is just being restarted.
const AWAY: Duration = Duration::from_millis(20);

/// Where the server can be asked; it moves when it restarts.
#[derive(Clone)]
pub(crate) struct Places {
    bases: Arc<Mutex<Vec<String>>>,
    client: Client,
}

/// How a reader reads.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Stream,
    Socket,
}

/// The experience of one reader.
pub(crate) struct Story {
    pub frames: Vec<Frame>,
    pub cuts: usize,
    /// Connections that were broken, or ended before the job, by the server.
    pub breaks: usize,
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_cut_again_and_again_see_every_event_once_and_in_order() {
    let mut chance = Chance::seeded(seed("streams"));
    let mut server = configured(ROOM).await;
    let ids = make_jobs(&server.client()).await;
    let places = Places::of(&[server.base.clone()], &server.launch().key);
    let readers = read_all(&ids, volume(READERS, 1000), &places, (Way::Stream, &mut chance));

    lead_through_restarts(&mut server, |server| places.move_to(std::slice::from_ref(&server.base))).await;

    judge(&server.client(), &ids, readers).await;
}

// The same behind a reverse proxy, which breaks and ends connections in its own way.
#[tokio::test(flavor = "multi_thread")]
async fn readers_behind_nginx_see_every_event_once_and_in_order() {
    let mut chance = Chance::seeded(seed("proxied streams"));
    let mut server = configured(ROOM).await;
    let ids = make_jobs(&server.client()).await;
    let mut nginx = Nginx::before(&server.own_base, "");
    let places = Places::of(std::slice::from_ref(&nginx.base), &server.launch().key);
    let readers = read_all(&ids, volume(READERS / 2, 200), &places, (Way::Stream, &mut chance));

    lead_through_restarts(&mut server, |server| {
        nginx = Nginx::before(&server.own_base, "");
        places.move_to(std::slice::from_ref(&nginx.base));
    })
    .await;

    judge(&server.client(), &ids, readers).await;
}

/// Lets the jobs go on while the server dies, comes back, stops as it should, comes back; then ends them.
/// `moved` gets its address after each start.
pub(crate) async fn lead_through_restarts(server: &mut Server, mut moved: impl FnMut(&Server)) {
    move_on(&server.client()).await;
    server.crash_and_restart().await;
    moved(server);
    move_on(&server.client()).await;
    assert!(server.terminate().await.success());
    *server = server.launch().clone().start().await;
    moved(server);
    move_on(&server.client()).await;
    finish(&server.client()).await;
}

impl Places {
    pub(crate) fn of(bases: &[String], key: &str) -> Places {
        Places { bases: Arc::new(Mutex::new(bases.to_vec())), client: Client::new("", key) }
    }

    pub(crate) fn move_to(&self, bases: &[String]) {
        *self.bases.lock().expect("no thread panics with the lock") = bases.to_vec();
    }

    /// Another one each time, where there are several.
    fn client(&self, connection: usize) -> Client {
        let bases = self.bases.lock().expect("no thread panics with the lock");
        self.client.at(&bases[connection % bases.len()])
    }
}

/// One queue per job, so that each is moved by its own hand-outs.
pub(crate) async fn make_jobs(client: &Client) -> Vec<String> {
    let mut ids = Vec::new();
    for number in 0..JOBS {
        make_queue(client, &format!("work-{number}"), json!({})).await;
        ids.push(publish(client, &format!("work-{number}"), json!(number)).await);
    }
    ids
}

/// Makes all jobs write some history.
pub(crate) async fn move_on(client: &Client) {
    for _ in 0..ROUNDS {
        for number in 0..JOBS {
            defer(client, &format!("work-{number}")).await;
        }
    }
}

pub(crate) async fn finish(client: &Client) {
    for number in 0..JOBS {
        let held = receive_one(client, &format!("work-{number}")).await;
        settle(client, &text(&held["id"]), "ack", json!({"lease": held["lease"], "result": number})).await;
    }
}

/// `count` readers, each of one of the jobs, from the beginning to the end.
pub(crate) fn read_all(
    ids: &[String],
    count: usize,
    places: &Places,
    (way, chance): (Way, &mut Chance),
) -> JoinSet<(String, Story)> {
    let mut readers = JoinSet::new();
    for number in 0..count {
        let (id, places) = (ids[number % ids.len()].clone(), places.clone());
        let chance = Chance::seeded(chance.below(u64::MAX));
        readers.spawn(async move { (id.clone(), read(&id, &places, number, (way, chance)).await) });
    }
    readers
}

async fn read(id: &str, places: &Places, number: usize, (way, mut chance): (Way, Chance)) -> Story {
    let mut story = Story { frames: Vec::new(), cuts: 0, breaks: 0 };
    for connection in number.. {
        let seen = story.frames.len() as u64;
        let after = (seen > 0).then_some(seen);
        let Some(mut stream) = Line::open(way, &places.client(connection), id, after).await else {
            tokio::time::sleep(AWAY).await;
            continue;
        };
        let budget = chance.between(3, EVENTS_PER_CONNECTION);
        loop {
            match stream.next().await {
                Next::Frame(frame) => story.frames.push(frame),
                Next::End if story.has_ended() => return story,
                Next::End | Next::Broken => {
                    story.breaks += 1;
                    break;
                }
            }
            if story.frames.len() as u64 >= seen + budget && !story.has_ended() {
                story.cuts += 1;
                break;
            }
        }
    }
    story
}

/// An open connection of a reader.
enum Line {
    Stream(Box<Sse>),
    Socket(Box<Ws>),
}

impl Line {
    /// `None` while the server is away.
    async fn open(way: Way, client: &Client, id: &str, after: Option<u64>) -> Option<Line> {
        match way {
            Way::Stream => match Sse::ask(client, id, after).await {
                Ok(Asked::Open(stream)) => Some(Line::Stream(stream)),
                Ok(Asked::Answer(reply)) => {
                    // 502: a proxy without an upstream.
                    assert!(matches!(reply.status, 502 | 503), "{}: {}", reply.status, reply.body);
                    None
                }
                Err(_) => None,
            },
            Way::Socket => match Ws::ask(client, id, after).await {
                Ok(socket) => Some(Line::Socket(Box::new(socket))),
                Err(Refused::Status(status)) => {
                    assert!(matches!(status, 502 | 503), "{status}");
                    None
                }
                Err(Refused::Broken) => None,
            },
        }
    }

    async fn next(&mut self) -> Next {
        match self {
            Line::Stream(stream) => stream.next().await,
            Line::Socket(socket) => match socket.next().await {
                Heard::Frame(data) => {
                    let id = data["seq"].as_u64().expect("an event has a number");
                    Next::Frame(Frame { id, event: text(&data["type"]), data })
                }
                Heard::Closed(1000) => Next::End,
                Heard::Closed(_) | Heard::Broken => Next::Broken,
            },
        }
    }
}

impl Story {
    fn has_ended(&self) -> bool {
        self.frames.last().is_some_and(|frame| frame.data["to"] == "succeeded")
    }
}

/// Each reader has the log as it is, and was cut often enough; and the servers did their part of the cutting.
pub(crate) async fn judge(client: &Client, ids: &[String], readers: JoinSet<(String, Story)>) {
    let mut logs = Vec::new();
    for id in ids {
        logs.push(all_events(client, id).await);
    }
    let stories = readers.join_all().await;
    let (mut cuts, mut breaks) = (0, 0);
    for (id, story) in &stories {
        let log = &logs[ids.iter().position(|known| known == id).expect("one of the jobs")];
        assert_is_log(&story.frames, log);
        assert!(story.cuts >= CUTS_MIN, "only {} cuts", story.cuts);
        (cuts, breaks) = (cuts + story.cuts, breaks + story.breaks);
    }
    println!("{} readers, {cuts} cuts, {breaks} breaks by the server, {} events each", stories.len(), logs[0].len());
    assert!(breaks > 0, "no reader has noticed that a server went away");
}
