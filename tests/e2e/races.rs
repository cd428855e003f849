//! I-16: ack, nack, cancel and the clock go for the same job at the same moment, in all pairs and triples, on the real
//! server. One of them wins, and all observers agree: the callers, the job, its log, its
//! stream, its callback. Each of the four must really have won its share, or the rig proves nothing.

mod judge;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::http::{Client, Reply};
use outlast_tests::server::{Launch, Server};
use outlast_tests::sink::{Arrival, Say, Sink};
use outlast_tests::sse::{Frame, Sse};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::{events, make_queue, text};
use Kind::{Ack, Cancel, Nack, Timeout};
use judge::{Heard, Kind, Race, judge};

/// Every pair and every triple.
const LINE_UPS: [&[Kind]; 10] = [
    &[Ack, Cancel],
    &[Ack, Nack],
    &[Cancel, Nack],
    &[Ack, Cancel, Nack],
    &[Ack, Timeout],
    &[Cancel, Timeout],
    &[Nack, Timeout],
    &[Ack, Cancel, Timeout],
    &[Ack, Nack, Timeout],
    &[Cancel, Nack, Timeout],
];
/// Jobs that one lane has in its hands at once. All their calls together stay below the connections that the server
/// takes from one address.
const HEAT: usize = 5;
/// Lanes side by side; those with the clock in them mostly wait for their deadline.
const LANES: usize = 64;
/// One job in so many has a live stream and a callback, and gets every call once more after its end.
const WATCHED_EVERY: usize = 16;
const DEADLINE: Duration = Duration::from_secs(60);
/// Each of the four wins at least this share of all races.
const SHARE_PERCENT_MIN: usize = 5;
/// So many times the races that were asked for, at most.
const EXTENSION_MAX: usize = 4;
/// By how much the moment of the calls moves, and by how many such steps at most.
const STEP_MICROS: i64 = 200;
const STREAK_MAX: i64 = 8;
/// The random shift of a call's time.
const SPREAD_MICROS: u64 = 6000;

/// A queue, and which clock ends its jobs if any.
struct Course {
    queue: &'static str,
    settings: &'static str,
    /// Which of the clocks, for when to meet it.
    clock: Option<usize>,
}

const CALM: [Course; 2] = [
    Course { queue: "calm", settings: r#"{"visibilityTimeout":600,"maxAttempts":1,"drainTimeout":0}"#, clock: None },
    Course {
        queue: "draining",
        settings: r#"{"visibilityTimeout":600,"maxAttempts":1,"drainTimeout":"20ms"}"#,
        clock: None,
    },
];
const TIMED: [Course; 3] = [
    Course { queue: "lease", settings: r#"{"visibilityTimeout":1,"maxAttempts":1,"drainTimeout":0}"#, clock: Some(0) },
    Course {
        queue: "hard",
        settings: r#"{"visibilityTimeout":600,"hardTimeLimit":1,"maxAttempts":1,"drainTimeout":"20ms"}"#,
        clock: Some(1),
    },
    Course {
        queue: "whole",
        settings: r#"{"visibilityTimeout":600,"jobTimeout":1,"maxAttempts":1,"drainTimeout":0}"#,
        clock: Some(2),
    },
];

/// Shared by all lanes.
struct Meeting {
    /// One per node: the calls of a race come in wherever they like.
    clients: Vec<Client>,
    sink: Sink,
    seed: u64,
    heats: usize,
    next_heat: AtomicUsize,
    /// One per clock.
    moments: [Moment; TIMED.len()],
}

/// When to call, so that on a fast and on a busy machine neither the clock nor the callers win always.
#[derive(Debug, Default)]
struct Moment {
    /// How long before the deadline the calls go out, in microseconds. It follows the outcomes.
    lead: AtomicI64,
    /// How often the clock has won in a row, or the callers, which counts below zero: the longer, the larger the steps.
    streak: AtomicI64,
    /// Races that the clock won, and those that it lost.
    clock_won: AtomicUsize,
    callers_won: AtomicUsize,
}

/// How a race went, as far as the end of the meeting asks.
struct Finish {
    kinds: &'static [Kind],
    winner: Kind,
    job: Value,
    is_watched: bool,
}

#[tokio::test(flavor = "multi_thread")]
async fn of_ack_cancel_timeout_and_nack_one_wins_and_all_observers_agree() {
    let launch = Launch::fresh();
    let races = volume(if launch.database().is_some() { 2_000 } else { 8_000 }, 200_000);
    let server = launch.start().await;
    let meeting = Arc::new(Meeting::open(&server, races).await);

    let started = Instant::now();
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        lanes.spawn(run_lane(Arc::clone(&meeting), lane));
    }
    let finishes: Vec<Finish> = lanes.join_all().await.into_iter().flatten().collect();

    println!("races: {} in {:?}, {:?}", finishes.len(), started.elapsed(), meeting.moments);
    assert!(finishes.len() >= races, "{} of {races} races were run", finishes.len());
    assert_each_won(&finishes);
    assert_nothing_has_changed_since(&meeting.clients[0], &finishes).await;
    assert_callbacks_agree(&meeting.sink, &finishes).await;
}

impl Meeting {
    async fn open(server: &Server, races: usize) -> Meeting {
        let clients = server.clients();
        for course in CALM.iter().chain(&TIMED) {
            make_queue(&clients[0], course.queue, serde_json::from_str(course.settings).unwrap()).await;
        }
        Meeting {
            clients,
            sink: Sink::open(|_: &Arrival| Say::Status(200)).await,
            seed: seed("races"),
            heats: races.div_ceil(HEAT),
            next_heat: AtomicUsize::new(0),
            moments: Default::default(),
        }
    }

    /// Enough races were run. On a busy machine a clock wins too rarely at first; then they go on, within a bound.
    fn has_ended(&self, heat: usize) -> bool {
        heat >= self.heats && (self.moments.iter().all(Moment::is_contested) || heat >= self.heats * EXTENSION_MAX)
    }

    /// Any of the nodes.
    fn client(&self, chance: &mut Chance) -> &Client {
        &self.clients[chance.below(self.clients.len() as u64) as usize]
    }
}

impl Moment {
    /// The clock has won, or it has not: the next calls go out a little earlier or later.
    fn learn(&self, winner: Kind) {
        let toward: i64 = if winner == Timeout { 1 } else { -1 };
        let before = self.streak.load(Ordering::Relaxed);
        let streak = if before * toward > 0 { (before + toward).clamp(-STREAK_MAX, STREAK_MAX) } else { toward };
        self.streak.store(streak, Ordering::Relaxed);
        self.lead.fetch_add(STEP_MICROS * streak, Ordering::Relaxed);
        let won = if winner == Timeout { &self.clock_won } else { &self.callers_won };
        won.fetch_add(1, Ordering::Relaxed);
    }

    /// Clock and callers have both won their share.
    fn is_contested(&self) -> bool {
        let [clock, callers] = [&self.clock_won, &self.callers_won].map(|won| won.load(Ordering::Relaxed));
        clock.min(callers) * 100 >= (clock + callers) * SHARE_PERCENT_MIN
    }
}

async fn run_lane(meeting: Arc<Meeting>, lane: usize) -> Vec<Finish> {
    let mut chance = Chance::seeded(meeting.seed.wrapping_add(lane as u64));
    let mut finishes = Vec::new();
    loop {
        let heat = meeting.next_heat.fetch_add(1, Ordering::Relaxed);
        if meeting.has_ended(heat) {
            return finishes;
        }
        let kinds = LINE_UPS[heat % LINE_UPS.len()];
        let courses = if kinds.contains(&Timeout) { &TIMED[..] } else { &CALM[..] };
        let course = &courses[(heat / LINE_UPS.len()) % courses.len()];
        let mut running = JoinSet::new();
        for race in line_up(&meeting, course, kinds, &mut chance).await {
            let own = Chance::seeded(meeting.seed ^ chance.below(u64::MAX));
            running.spawn(run(Arc::clone(&meeting), race, course.clock, own));
        }
        finishes.extend(running.join_all().await);
    }
}

/// Publishes as many jobs as a heat has, and takes as many: its own or those of another lane.
async fn line_up(meeting: &Meeting, course: &Course, kinds: &'static [Kind], chance: &mut Chance) -> Vec<Race> {
    let client = meeting.client(chance);
    let jobs: Vec<Value> = (0..HEAT)
        .map(|_| match chance.below(WATCHED_EVERY as u64) {
            0 => json!({"payload": "watched", "callbackUrl": meeting.sink.url("/ended")}),
            _ => json!({"payload": "plain"}),
        })
        .collect();
    client.post(&format!("/v1/queues/{}/jobs/batch", course.queue), json!({"jobs": jobs})).await.unwrap().expect(202);
    let mut races = Vec::new();
    while races.len() < HEAT {
        let request = json!({"batch": HEAT - races.len(), "wait": 5});
        let reply = client.post(&format!("/v1/queues/{}/receive", course.queue), request).await.unwrap().expect(200);
        races.extend(reply["jobs"].as_array().unwrap().iter().map(|job| race(job, kinds)));
    }
    races
}

fn race(job: &Value, kinds: &'static [Kind]) -> Race {
    // Of all ends the nearest: that of the lease, of the attempt or of the job.
    let deadline: Timestamp = text(&job["leaseExpiresAt"]).parse().unwrap();
    Race { id: text(&job["id"]), lease: text(&job["lease"]), kinds, deadline, is_watched: job["payload"] == "watched" }
}

/// One race from its start to the verdict.
async fn run(meeting: Arc<Meeting>, race: Race, clock: Option<usize>, mut chance: Chance) -> Finish {
    let watching = match race.is_watched {
        true => Some(watch(meeting.client(&mut chance), &race.id).await),
        false => None,
    };
    let moment = clock.map(|clock| &meeting.moments[clock]);
    if let Some(moment) = moment {
        let lead = moment.lead.load(Ordering::Relaxed);
        let left = race.deadline.duration_since(Timestamp::now()).as_micros() as i64 - lead;
        tokio::time::sleep(Duration::from_micros(u64::try_from(left).unwrap_or(0))).await;
    }
    let heard = call_all(&meeting, &race, &mut chance).await;
    let job = ended(meeting.client(&mut chance), &race.id).await;
    let winner = judge(&race, &heard, &job).unwrap_or_else(|fault| {
        panic!("{fault}\n{:?} for {}\nanswers {heard:?}\nthe job is {job}", race.kinds, race.id)
    });
    if let Some(moment) = moment {
        moment.learn(winner);
    }
    if let Some(frames) = watching {
        let frames = frames.await.expect("the reader reads to the end");
        assert_log_is_the_same(meeting.client(&mut chance), &job, &frames).await;
        assert_calls_say_the_same_again(meeting.client(&mut chance), &race, &job).await;
    }
    Finish { kinds: race.kinds, winner, job, is_watched: race.is_watched }
}

/// Opens the job's stream and reads it to its end beside the race.
async fn watch(client: &Client, id: &str) -> tokio::task::JoinHandle<Vec<Frame>> {
    let mut stream = Sse::open(client, id, None).await;
    tokio::spawn(async move { stream.rest().await })
}

/// All calls of a race, each on its own, in any order.
async fn call_all(meeting: &Arc<Meeting>, race: &Race, chance: &mut Chance) -> Vec<Heard> {
    let mut calls = JoinSet::new();
    for kind in race.kinds.iter().copied().filter(|kind| *kind != Timeout) {
        let client = meeting.client(chance).clone();
        let (id, lease) = (race.id.clone(), race.lease.clone());
        let late = Duration::from_micros(chance.below(SPREAD_MICROS));
        calls.spawn(async move {
            // Not a wait for anything: who comes first is the random input of the rig.
            tokio::time::sleep(late).await;
            let reply = call(&client, kind, &id, &lease).await;
            Heard { kind, status: reply.status, body: reply.body }
        });
    }
    calls.join_all().await
}

async fn call(client: &Client, kind: Kind, id: &str, lease: &str) -> Reply {
    let (verb, body) = match kind {
        Ack => ("ack", json!({"lease": lease, "result": {"of": id}})),
        Nack => ("nack", json!({"lease": lease, "retryable": false, "reason": "nack came first"})),
        Cancel => ("cancel", json!({})),
        Timeout => unreachable!("the clock needs no call"),
    };
    client.post(&format!("/v1/jobs/{id}/{verb}"), body).await.unwrap()
}

/// The job at its end, by long poll.
async fn ended(client: &Client, id: &str) -> Value {
    let (started, mut version) = (Stopwatch::start(), 0);
    loop {
        let job = client.get(&format!("/v1/jobs/{id}?wait=10s&version={version}")).await.unwrap().expect(200);
        if !job["finishedAt"].is_null() {
            return job;
        }
        assert!(!started.has_passed(DEADLINE), "no end: {job}");
        version = job["version"].as_u64().unwrap();
    }
}

/// The log read by pages and the live stream agree with the job.
async fn assert_log_is_the_same(client: &Client, job: &Value, frames: &[Frame]) {
    let id = text(&job["id"]);
    let shown = job["events"].as_array().unwrap();
    assert_eq!(&events(client, &id).await, shown, "another log by pages");
    let streamed: Vec<&Value> = frames.iter().map(|frame| &frame.data).collect();
    assert_eq!(streamed, shown.iter().collect::<Vec<_>>(), "another log by stream");
}

/// The end is final: the winner gets the same answer again, the losers are refused again, and the job does not change.
async fn assert_calls_say_the_same_again(client: &Client, race: &Race, job: &Value) {
    let mut heard = Vec::new();
    for kind in race.kinds.iter().copied().filter(|kind| *kind != Timeout) {
        let reply = call(client, kind, &race.id, &race.lease).await;
        heard.push(Heard { kind, status: reply.status, body: reply.body });
    }
    let again = ended(client, &race.id).await;
    for field in ["status", "version", "events", "finishedAt", "cancelReason", "resultMeta", "error", "lastError"] {
        assert_eq!(again[field], job[field], "{field} of {} has changed after the end", race.id);
    }
    judge(race, &heard, &again).unwrap_or_else(|fault| panic!("said again: {fault}\nanswers {heard:?}\n{again}"));
    if job["status"] == "succeeded" {
        let result = client.get(&format!("/v1/jobs/{}/result", race.id)).await.unwrap().expect(200);
        assert_eq!(result, json!({"of": race.id}));
    }
}

fn assert_each_won(finishes: &[Finish]) {
    let mut wins = BTreeMap::<Kind, usize>::new();
    let mut by_line_up = BTreeMap::<(&[Kind], Kind), usize>::new();
    for finish in finishes {
        *wins.entry(finish.winner).or_default() += 1;
        *by_line_up.entry((finish.kinds, finish.winner)).or_default() += 1;
    }
    println!("races: won {wins:?}");
    for ((kinds, winner), count) in by_line_up {
        println!("races: {kinds:?}: {winner:?} {count}");
    }
    for course in &TIMED {
        let run: Vec<&Finish> = finishes.iter().filter(|finish| finish.job["queue"] == course.queue).collect();
        let timeouts = run.iter().filter(|finish| finish.winner == Timeout).count();
        println!("races: the clock of {} won {timeouts} of {}", course.queue, run.len());
        let share = timeouts.min(run.len() - timeouts) * 100;
        assert!(
            share >= run.len() * SHARE_PERCENT_MIN,
            "the clock of {} won {timeouts} of {}",
            course.queue,
            run.len()
        );
    }
    for kind in [Ack, Cancel, Timeout, Nack] {
        let won = wins.get(&kind).copied().unwrap_or(0);
        assert!(won * 100 >= finishes.len() * SHARE_PERCENT_MIN, "{kind:?} won only {won} of {}", finishes.len());
    }
}

/// Once more in the lists, long after most of the races.
async fn assert_nothing_has_changed_since(client: &Client, finishes: &[Finish]) {
    let mut listed = BTreeMap::new();
    for course in CALM.iter().chain(&TIMED) {
        let mut path = format!("/v1/jobs?queue={}&limit=200", course.queue);
        loop {
            let page = client.get(&path).await.unwrap().expect(200);
            listed.extend(page["items"].as_array().unwrap().iter().map(|job| (text(&job["id"]), job.clone())));
            match page["nextCursor"].as_str() {
                Some(cursor) => path = format!("/v1/jobs?queue={}&limit=200&cursor={cursor}", course.queue),
                None => break,
            }
        }
    }
    assert_eq!(listed.len(), finishes.len(), "every job was raced once");
    for Finish { job, .. } in finishes {
        let now = &listed[&text(&job["id"])];
        for field in ["status", "version", "attempt", "finishedAt", "cancelReason", "error", "lastError"] {
            assert_eq!(now[field], job[field], "{field} has changed since the end of {job}");
        }
        // A list tells less of a result.
        assert_eq!(now["resultMeta"]["length"], job["resultMeta"]["length"], "the result of {job} has changed");
    }
}

/// Every watched end has a correct callback.
async fn assert_callbacks_agree(sink: &Sink, finishes: &[Finish]) {
    let watched: BTreeMap<String, &Value> = finishes
        .iter()
        .filter(|finish| finish.is_watched)
        .map(|finish| (text(&finish.job["id"]), &finish.job))
        .collect();
    let told = wait::until_now("a callback for every watched end", DEADLINE, || {
        let told: BTreeMap<String, Value> =
            sink.arrivals().into_iter().map(|arrival| (arrival.job, arrival.body)).collect();
        (told.len() >= watched.len()).then_some(told)
    })
    .await;
    println!("races: {} of {} were watched by stream and callback", watched.len(), finishes.len());
    assert!(watched.len() * WATCHED_EVERY * 2 > finishes.len(), "too few were watched");
    for (id, job) in &watched {
        let body = &told[id];
        let reason = match job["status"].as_str() {
            Some("cancelled") => &job["cancelReason"],
            _ => &job["error"]["reason"],
        };
        let result = if job["status"] == "succeeded" { json!({"of": id}) } else { Value::Null };
        let shown = (&body["status"], &body["finishedAt"], &body["error"]["reason"], &body["result"]);
        assert_eq!(shown, (&job["status"], &job["finishedAt"], reason, &result), "the callback of {job}");
    }
    for arrival in sink.arrivals() {
        assert_eq!(arrival.body, told[&arrival.job], "two different callbacks of one end");
    }
}
