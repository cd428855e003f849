//! Rate and concurrency of a queue over three nodes together, counted where the requests arrive. (I-25)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use outlast_tests::chance::volume;
use outlast_tests::server::Server;
use outlast_tests::sink::{Say, Sink};
use outlast_tests::stopwatch::Stopwatch;
use outlast_tests::wait;
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;

use crate::api::{make_queue, publish_many, receive, settle};
use crate::cluster::{clients, three_nodes};
use crate::push_load::{drained, pushing};

const RATE: usize = 50;
const WINDOW: Duration = Duration::from_secs(10);
const CONCURRENCY: usize = 7;
const DEADLINE: Duration = Duration::from_secs(90);

// I-25: 50 a second, delivered and pulled, on three nodes at once: no window of ten seconds has more than 500.
#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_holds_over_all_nodes_for_push_and_for_pull() {
    let seconds = volume(26, 600);
    let server = pushing(three_nodes()).start().await;
    let sink = Sink::open(|_| Say::Status(200)).await;
    let limit = json!({"limit": RATE, "per": 1});
    let push = json!({"webhookUrl": sink.url("/"), "rateLimit": limit});
    make_queue(&server.client(), "push", push).await;
    make_queue(&server.client(), "pull", json!({"rateLimit": limit, "visibilityTimeout": 600})).await;
    publish_many(&server.client(), "push", RATE * (seconds + 4)).await;
    publish_many(&server.client(), "pull", RATE * (seconds + 4)).await;

    let (measured, stopwatch) = (Duration::from_secs(seconds as u64), Stopwatch::start());
    let enough = RATE * seconds / 2;
    let mut pulled = pull_for(&server, measured, enough, &sink).await;
    pulled.sort();
    let withheld = stopwatch.withheld();
    let pushed: Vec<Instant> = sink.arrivals().into_iter().map(|arrival| arrival.at).collect();

    for (way, times) in [("push", &pushed), ("pull", &pulled)] {
        let (fullest, share) = (fullest_window(times), share(times, measured, withheld));
        println!("rate, {way}: {} in all, {fullest} in the fullest window, {share:.3} of the limit used", times.len());
    }
    for times in [&pushed, &pulled] {
        assert!(fullest_window(times) <= RATE * WINDOW.as_secs() as usize * 101 / 100);
        assert!(times.len() >= enough, "{} hand-outs are too few to mean anything", times.len());
        // Alone it is 0.94, which is all that the even spacing allows. In a test run others use the processors as well.
        assert!(volume(0, 1) == 0 || share(times, measured, withheld) >= 0.85, "the queue does not use its limit");
    }
}

/// How much of the limit was used, from the first one on, in the time that the machine gave.
fn share(times: &[Instant], measured: Duration, withheld: Duration) -> f64 {
    let time = measured - Duration::from_secs(1);
    let used = times.partition_point(|at| *at - times[0] < time);
    used as f64 / (RATE as f64 * time.saturating_sub(withheld).as_secs_f64())
}

/// Receives on all nodes for so long, and on until both the pullers and the sink have `enough`; says when each job came.
async fn pull_for(server: &Server, time: Duration, enough: usize, sink: &Sink) -> Vec<Instant> {
    let started = Instant::now();
    let (pulled, is_done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut pullers = JoinSet::new();
    for client in clients(server) {
        let (pulled, is_done) = (Arc::clone(&pulled), Arc::clone(&is_done));
        pullers.spawn(async move {
            let mut times = Vec::new();
            while !is_done.load(Ordering::SeqCst) {
                let jobs = receive(&client, "pull", json!({"batch": 10, "wait": 1})).await;
                times.extend(jobs.iter().map(|_| Instant::now()));
                pulled.fetch_add(jobs.len(), Ordering::SeqCst);
            }
            times
        });
    }
    wait::until("enough hand-outs", time * 4, async || {
        let has_enough = pulled.load(Ordering::SeqCst) >= enough && sink.count() >= enough;
        (has_enough && started.elapsed() >= time).then_some(())
    })
    .await;
    is_done.store(true, Ordering::SeqCst);
    pullers.join_all().await.into_iter().flatten().collect()
}

/// The most that fall into any window. The times are in order.
fn fullest_window(times: &[Instant]) -> usize {
    let until = |start: Instant| times.partition_point(|at| *at < start + WINDOW);
    times.iter().enumerate().map(|(index, start)| until(*start) - index).max().unwrap_or(0)
}

#[test]
fn the_fullest_window_is_found() {
    let start = Instant::now();
    let at = |seconds: &[u64]| seconds.iter().map(|second| start + Duration::from_secs(*second)).collect::<Vec<_>>();

    assert_eq!(fullest_window(&at(&[0, 1, 9, 10, 11, 12, 30])), 4);
    assert_eq!(fullest_window(&at(&[])), 0);
}

// I-25: never more at once at the endpoint than the limit says, and the limit is made use of.
#[tokio::test(flavor = "multi_thread")]
async fn a_concurrency_limit_holds_over_all_nodes_for_deliveries() {
    let server = pushing(three_nodes()).start().await;
    // The first ones are slow enough for the limit to be reached on any machine.
    let time = |number: usize| if number < CONCURRENCY { 2000 } else { 10 + number as u64 % 50 };
    let sink = Sink::open(move |arrival| Say::Slowly(Duration::from_millis(time(arrival.number)), 200)).await;
    make_queue(&server.client(), "work", json!({"webhookUrl": sink.url("/"), "concurrency": CONCURRENCY})).await;

    let ids = publish_many(&server.client(), "work", volume(300, 10_000)).await;
    drained(&server.client(), "work", DEADLINE).await;

    println!("concurrency, deliveries: {} at once", sink.most_at_once());
    assert_eq!((sink.count(), sink.most_at_once()), (ids.len(), CONCURRENCY));
}

/// The number of hand-outs without an outcome in progress.
#[derive(Default)]
struct Held {
    present: AtomicUsize,
    most: AtomicUsize,
}

impl Held {
    fn take(&self) {
        let present = self.present.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(present, Ordering::SeqCst);
    }

    fn give(&self) {
        self.present.fetch_sub(1, Ordering::SeqCst);
    }
}

// I-25: a job that awaits its ack counts as running.
#[tokio::test(flavor = "multi_thread")]
async fn a_concurrency_limit_holds_over_all_nodes_for_jobs_that_await_their_ack() {
    let server = pushing(three_nodes()).start().await;
    let held = Arc::new(Held::default());
    let (take, mut taken) = unbounded_channel();
    let counting = Arc::clone(&held);
    let sink = Sink::open(move |arrival| {
        counting.take();
        let _ = take.send((arrival.job.clone(), arrival.lease.clone()));
        Say::Status(200)
    })
    .await;
    let settings = json!({"webhookUrl": sink.url("/"), "mode": "ack", "concurrency": CONCURRENCY, "ackTimeout": 600});
    make_queue(&server.client(), "work", settings).await;
    let ids = publish_many(&server.client(), "work", volume(200, 10_000)).await;

    let nodes = clients(&server);
    // Nothing is acknowledged until the limit is reached.
    wait::until_now("the limit to be reached", DEADLINE, || (sink.count() >= CONCURRENCY).then_some(())).await;
    let mut acks = JoinSet::new();
    for number in 0..ids.len() {
        let (id, lease) = wait::within(DEADLINE, taken.recv()).await.expect("deliveries go on").unwrap();
        let (client, held) = (nodes[number % nodes.len()].clone(), Arc::clone(&held));
        acks.spawn(async move {
            // How long a worker takes.
            tokio::time::sleep(Duration::from_millis(10 + number as u64 % 30)).await;
            held.give();
            settle(&client, &id, "ack", json!({"lease": lease})).await;
        });
    }
    acks.join_all().await;

    drained(&server.client(), "work", DEADLINE).await;
    assert_eq!((sink.count(), held.most.load(Ordering::SeqCst)), (ids.len(), CONCURRENCY));
}
