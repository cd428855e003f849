// Waits by condition, with a generous deadline.

/** The first truthy value of `look`; fails after `seconds`. */
export async function until(look, label, seconds = 60) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`${label}: not within ${seconds} s`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

export const pause = (millis) => new Promise((resolve) => setTimeout(resolve, millis));
