// A handler of ten sections, for tests that run it in a child process.

export default async function handler(job) {
  const names = Array.from({ length: 10 }, (_, index) => `section-${index + 1}`);
  const parts = await job.eachSection(names, async (name) => ({ name, attempt: job.attempt }));
  return { parts: parts.length, first: parts.filter((part) => part.attempt === 1).length };
}
