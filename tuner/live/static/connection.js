// The connection to the server: all that is known at first, then changes as they come; again after each interruption.

const SILENT_MS = 30_000; // the server says something more often than that
const AGAIN_MS = [1000, 2000, 5000, 10_000];

// address: of the run's page. store: takes in what comes. changed: called then. state: called with "live" or a reason.
export function connect(address, store, changed, state) {
  let source = null, failures = 0, timer = 0, heard = 0, opening = false;

  const take = (told) => {
    heard = Date.now();
    store.take(told);
    changed(told);
  };

  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };

  const again = (why) => {
    close();
    state(why);
    timer = setTimeout(open, AGAIN_MS[Math.min(failures++, AGAIN_MS.length - 1)]);
  };

  async function open() {
    if (opening || document.hidden) return;
    opening = true;
    close();
    try {
      const answer = await fetch(`${address}/data?since=${encodeURIComponent(store.id)}`);
      if (!answer.ok) return again(await refusal(answer));
      take(await answer.json());
    } catch {
      return again("the server does not answer");
    } finally {
      opening = false;
    }
    if (!document.hidden) listen();
  }

  function listen() {
    source = new EventSource(`${address}/events?since=${encodeURIComponent(store.id)}`);
    const is = source;
    source.onopen = () => { failures = 0; heard = Date.now(); state("live"); };
    source.onmessage = (event) => take(JSON.parse(event.data));
    source.addEventListener("ping", () => { heard = Date.now(); });
    source.onerror = () => {
      if (is !== source) return;
      if (source.readyState === EventSource.CLOSED) again("the server has closed the connection");
      else state("the server does not answer"); // the browser connects again by itself
    };
  }

  setInterval(() => {
    if (source?.readyState === EventSource.OPEN && Date.now() - heard > SILENT_MS) again("the server is silent");
  }, 5000);
  // a hidden page holds no connection: browsers have few for each server
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  open();
}

// Why the server refuses, in its own words.
export async function refusal(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `the server answers ${answer.status}`;
  }
}
