// The connection to the server: all that is known at first, then changes as they come; again after each interruption.

const SILENT_MS = 30_000; // the server says something more often than that
const AGAIN_MS = [1000, 2000, 5000, 10_000];
const ANSWER_MS = 150_000; // the server may read a long journal first
const NO_ANSWER = "the server does not answer";

export const LIVE = "live", CONNECTING = "connecting …";

// address: of the run's page. store: takes in what comes. changed: called then. state: see `follow`.
export function connect(address, store, changed, state) {
  const take = (told) => {
    store.take(told);
    changed(told);
  };
  const before = async () => {
    const answer = await fetch(`${address}/data?since=${encodeURIComponent(store.id)}`, { signal: AbortSignal.timeout(ANSWER_MS) });
    if (!answer.ok) return refusal(answer);
    take(await answer.json());
    return "";
  };
  follow(before, () => `${address}/events?since=${encodeURIComponent(store.id)}`, take, state);
}

// before: what is to be done before each connection; it gives the reason if there can be none. address: of the events.
// take: gets each. state: called with `LIVE`, `CONNECTING`, or why there is no connection.
export function follow(before, address, take, state) {
  let source = null, failures = 0, timer = 0, heard = 0, opening = false;

  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };

  const again = (why) => {
    close();
    state(`not connected: ${why}`);
    timer = setTimeout(open, AGAIN_MS[Math.min(failures++, AGAIN_MS.length - 1)]);
  };

  async function open() {
    if (opening || document.hidden) return;
    opening = true;
    close();
    if (!failures) state(CONNECTING);
    let why = NO_ANSWER;
    try {
      why = await before();
    } catch {
      // there is no answer
    } finally {
      opening = false;
    }
    if (why) again(why);
    else if (!document.hidden) listen();
  }

  function listen() {
    const is = source = new EventSource(address());
    source.onopen = () => { failures = 0; heard = Date.now(); state(LIVE); };
    source.onmessage = (event) => { heard = Date.now(); take(JSON.parse(event.data)); };
    source.addEventListener("ping", () => { heard = Date.now(); });
    source.onerror = () => {
      if (is !== source) return;
      if (source.readyState === EventSource.CLOSED) again("the server has closed the connection");
      else state(`not connected: ${NO_ANSWER}`); // the browser connects again by itself
    };
  }

  setInterval(() => {
    if (source?.readyState === EventSource.OPEN && Date.now() - heard > SILENT_MS) again("the server is silent");
  }, 5000);
  // a hidden page holds no connection: browsers have few for each server
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  open();
}

// Shows a state of `follow`.
export function show(link, told) {
  link.textContent = told;
  link.dataset.is = told === LIVE ? "live" : told === CONNECTING ? "" : "off";
}

// Why the server refuses, in its own words.
export async function refusal(answer) {
  if (answer.status === 401) return "your token is not valid any more: reload the page to log in";
  const text = await answer.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return answer.status === 403 && text.length < 300 ? text.trim() : `the server answers ${answer.status}`;
  }
}

// Why the server would refuse events, which an EventSource does not tell; empty if it would not.
export async function refusedEvents(address) {
  const enough = new AbortController();
  try {
    const answer = await fetch(address, { signal: enough.signal });
    return answer.ok ? "" : await refusal(answer);
  } finally {
    enough.abort();
  }
}
