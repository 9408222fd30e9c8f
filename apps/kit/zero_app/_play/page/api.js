// Questions to the server, which keeps no game: each sends all moves.

const token = location.hash.slice(1);

/** The answer to a question. While the server is busy it is asked again, as long as `goesOn` says so of
    the number of tries; null where it does not. */
export async function fetched(path, body, goesOn) {
  const headers = { "Content-Type": "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  for (let tries = 1; ; tries++) {
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch {
      throw new Error("The server does not answer: is it still running?");
    }
    if (response.status === 503 || response.status === 429) {
      if (!goesOn(tries)) return null;
      const seconds = Number(response.headers.get("Retry-After")) || 1;
      await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
      continue;
    }
    const answer = await response.json().catch(() => ({ error: "no answer that can be read" }));
    if (!response.ok) throw new Error(`The server says: ${answer.error}`);
    return answer;
  }
}

let searching = 0;

/** No more than two searches at a time, also where those of before are still under way; null where
    `isOld` says meanwhile that nobody waits any more. */
export async function inTurn(search, isOld) {
  while (searching >= 2) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    if (isOld()) return null;
  }
  searching += 1;
  try {
    return await search();
  } finally {
    searching -= 1;
  }
}
