//! I-05: the disk runs full under the server, at several levels and once to the last byte. Needs root.

use std::fs;
use std::time::{Duration, Instant};

use outlast_tests::chance::{Chance, seed, volume};
use outlast_tests::http::{Client, Ending};
use outlast_tests::image::Image;
use outlast_tests::server::{Launch, Server};
use outlast_tests::wait;
use outlast_tests::workload::snapshot::read_jobs;
use serde_json::{Value, json};

use crate::api::{job, make_queue, receive, text};

const IMAGE_MEBIBYTES: u64 = 128;
/// Levels on one image: each leaves some MiB of jobs behind, and the image must not fill for good.
const LEVELS_PER_IMAGE: u64 = 3;
/// From the return of the space to the next acknowledged publish.
const RECOVERY_DEADLINE: Duration = Duration::from_secs(10);
/// The fullest payloads below fill the largest level in far fewer publishes than this.
const PUBLISHES_MAX: usize = 20_000;
const RUNNING_JOBS: usize = 20;
/// The disk counts as full when so many publishes in a row were refused: the server may tidy up at the first one.
const REFUSALS_IN_A_ROW: usize = 8;

struct Rig {
    // Before `image`: the process must be gone when the image is unmounted.
    server: Server,
    image: Image,
    client: Client,
    chance: Chance,
    /// Every acknowledged publish, and the state that its last acknowledged outcome named.
    expected: Vec<(String, Option<&'static str>)>,
}

// I-05, F06: a full disk refuses publishes definitely, takes acks, serves reads, and recovers when space returns.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_publishes_takes_acks_and_heals() {
    if !Image::available("disk full") {
        return;
    }
    for _ in 0..volume(1, 66) {
        let mut rig = Rig::open().await;
        for level in 0..LEVELS_PER_IMAGE {
            let left = rig.chance.between(level << 20, 6 << 20);
            rig.fill_and_heal(left).await;
        }
        rig.restart_and_compare().await;
    }
}

// I-05, F06: the same when another program takes the disk to the last byte: acks live on reserved space.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_without_one_free_byte_still_takes_acks_and_heals() {
    if !Image::available("disk full to the last byte") {
        return;
    }
    let mut rig = Rig::open().await;
    for _ in 0..volume(2, 20) {
        rig.fill_and_heal(0).await;
    }

    rig.restart_and_compare().await;
}

impl Rig {
    async fn open() -> Rig {
        let image = Image::new(IMAGE_MEBIBYTES);
        let server = Launch::embedded().on(&image.path().join("data")).start().await;
        let client = server.client();
        make_queue(&client, "work", json!({"visibilityTimeout": 3600})).await;
        let mut rig = Rig { image, server, client, chance: Chance::seeded(seed("disk full")), expected: Vec::new() };
        // A first publish tells whether the server takes work at all; a full disk is no excuse then.
        assert_eq!(rig.publish(100).await, Ending::Acknowledged);
        rig
    }

    /// One level: the disk is taken until `left` bytes are free, publishes fill the rest, then the space comes back.
    async fn fill_and_heal(&mut self, left: u64) {
        let running = self.running_jobs().await;
        let ballast = self.image.put_ballast(left);
        self.publish_until_refused(left).await;

        let refused = self.client.get("/readyz").await.unwrap().expect_problem(503, "unavailable");
        assert!(text(&refused["detail"]).contains("degraded: disk full"), "{refused}");
        self.check_that_reads_go_on().await;
        self.check_that_acks_succeed(&running).await;

        fs::remove_file(ballast).unwrap();
        wait::until("the server to be ready", RECOVERY_DEADLINE, async || {
            (self.client.get("/readyz").await.unwrap().status == 200).then_some(())
        })
        .await;
        let returned = Instant::now();
        wait::until("a publish after the space came back", RECOVERY_DEADLINE, async || {
            (self.publish(100).await == Ending::Acknowledged).then_some(())
        })
        .await;
        println!("disk full: {left} bytes left, healed in {:?}", returned.elapsed());
        self.compare().await;
    }

    async fn running_jobs(&mut self) -> Vec<Value> {
        for _ in 0..RUNNING_JOBS {
            assert_eq!(self.publish(100).await, Ending::Acknowledged);
        }
        let jobs = receive(&self.client, "work", json!({"batch": RUNNING_JOBS, "wait": 5})).await;
        assert_eq!(jobs.len(), RUNNING_JOBS);
        jobs
    }

    /// Notes the job when it was acknowledged. No answer at all is a failure here: nothing was killed.
    async fn publish(&mut self, payload_bytes: usize) -> Ending {
        let payload = "x".repeat(payload_bytes);
        let reply = self.client.post("/v1/queues/work/jobs", json!({ "payload": payload })).await;
        let reply = reply.expect("a full disk is no reason not to answer");
        if reply.ending() == Ending::Acknowledged {
            self.expected.push((text(&reply.body["id"]), None));
        }
        reply.ending()
    }

    /// Big and small: each is either stored or refused in so many words, never left open.
    async fn publish_until_refused(&mut self, left: u64) {
        let mut refusals = 0;
        for _ in 0..PUBLISHES_MAX {
            let bytes = self.chance.between(1, 60_000) as usize;
            let ending = self.publish(bytes).await;
            if ending == Ending::Acknowledged {
                refusals = 0;
                continue;
            }
            assert_says_full(&ending);
            refusals += 1;
            if refusals == REFUSALS_IN_A_ROW {
                return;
            }
        }
        panic!("{PUBLISHES_MAX} publishes went into {left} bytes");
    }

    async fn check_that_reads_go_on(&mut self) {
        let some = self.expected[self.chance.below(self.expected.len() as u64) as usize].0.clone();
        assert_eq!(job(&self.client, &some).await["id"], some);
        self.client.get("/v1/jobs?queue=work&limit=50").await.unwrap().expect(200);
        self.client.get("/v1/queues/work").await.unwrap().expect(200);
        self.client.get("/healthz").await.unwrap().expect(200);
    }

    async fn check_that_acks_succeed(&mut self, running: &[Value]) {
        for held in running {
            let id = text(&held["id"]);
            let reply = self.client.post(&format!("/v1/jobs/{id}/ack"), json!({"lease": held["lease"]})).await;
            assert_eq!(reply.unwrap().expect(200)["status"], "succeeded");
            let noted = self.expected.iter_mut().find(|(job, _)| *job == id);
            noted.expect("a received job was published").1 = Some("succeeded");
        }
    }

    /// Everything acknowledged is there, in the state that was acknowledged.
    async fn compare(&self) {
        let ids = self.expected.iter().map(|(id, _)| id.clone()).collect();
        let found = read_jobs(&self.client, ids).await;
        for (id, status) in &self.expected {
            let job = found.get(id).unwrap_or_else(|| panic!("job {id} was acknowledged and is gone"));
            if let Some(status) = status {
                assert_eq!(job["status"], *status, "job {id}");
            }
        }
    }

    async fn restart_and_compare(mut self) {
        self.server.crash_and_restart().await;
        self.client = self.server.client();
        self.compare().await;
        self.server.kill9().await;
    }
}

#[track_caller]
fn assert_says_full(ending: &Ending) {
    let Ending::Refused { status, code } = ending else {
        panic!("a refusal on a full disk is definite, not {ending:?}");
    };
    assert!(matches!(status, 503 | 507) && !code.is_empty(), "a full disk is 507 or 503 with a code, not {ending:?}");
}
