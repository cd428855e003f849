//! Dead letters of a queue, the latest failure first. A list leaves out rows that are damaged.

use outlast_core::Timestamp;
use tokio_postgres::types::Type;

use super::read::{ReadView, jobs_at, queue};
use super::session::Sql;
use crate::dead_letters::{DeadLetterPage, Failure, ListDeadLetters, failed_at};
use crate::error::Error;
use crate::page::{EncodedSize, PageSize};

pub(super) static LATEST_FAILURES: Sql = Sql {
    text: "
        SELECT seq, failed_at
        FROM dead_letter
        WHERE queue = $1 AND (failed_at, seq) < ($2, $3)
        ORDER BY failed_at DESC, seq DESC
        LIMIT $4",
    types: &[Type::INT4, Type::INT8, Type::INT8, Type::INT8],
};

pub(super) async fn dead_letters(look: &ReadView<'_>, list: &ListDeadLetters) -> Result<DeadLetterPage, Error> {
    let mut page = DeadLetterPage { jobs: Vec::new(), next: None };
    let Some(namespace) = list.reach.namespace() else {
        return Ok(page);
    };
    let Some(queue) = queue(look, namespace, &list.queue).await?.filter(|queue| list.reach.covers(queue)) else {
        return Ok(page);
    };
    let failures = failures(look, queue.id.0, list).await?;
    let mut size = PageSize::default();
    let seqs: Vec<i64> = failures.iter().map(|failure| failure.position.cast_signed()).collect();
    let mut found = jobs_at(look, &seqs).await?;
    for failure in &failures {
        // It may have been replayed or deleted between the two statements, or be damaged.
        let Some(found) = found.remove(&failure.position.cast_signed()).filter(|found| failed_at(&found.job).is_some())
        else {
            continue;
        };
        size.add(found.job.written());
        page.jobs.push(found);
        if size.is_full() {
            page.next = Some(*failure);
            return Ok(page);
        }
    }
    page.next = failures.last().copied().filter(|_| failures.len() >= list.limit);
    Ok(page)
}

async fn failures(look: &ReadView<'_>, queue: u32, list: &ListDeadLetters) -> Result<Vec<Failure>, Error> {
    let before = list.before.map(|before| (before.at.as_millis(), before.position.cast_signed()));
    let (at, seq) = before.unwrap_or((i64::MAX, i64::MAX));
    let limit = i64::try_from(list.limit).unwrap_or(i64::MAX);
    let rows = look.read(&LATEST_FAILURES, &[&queue.cast_signed(), &at, &seq, &limit]).await?;
    let failure = |row: &tokio_postgres::Row| Failure {
        at: Timestamp::from_millis(row.get(1)),
        position: row.get::<_, i64>(0).cast_unsigned(),
    };
    Ok(rows.iter().map(failure).collect())
}
