// What is known of a run: changes are taken in, and never anything else.

export class Store {
  constructor() {
    this.id = "";
    this.now = {};
    this.forget();
  }

  forget() {
    this.run = null; // what stays the same for long: objectives, parameters, rungs, budget
    this.head = null; // how the search stands as a whole
    this.trials = new Map(); // by number
    this.best = []; // [seconds, value, trial]
    this.busy = { xs: [], ys: [] };
    this.failures = [];
    this.commands = [];
    this.elapsed = 0;
  }

  trial(number) {
    let found = this.trials.get(number);
    if (!found) this.trials.set(number, (found = { number, id: "", values: [], xs: [], ys: [], best: [] }));
    return found;
  }

  take(told) {
    if (told.whole) this.forget();
    if (told.id !== undefined) this.id = told.id; // "": nothing is known
    this.elapsed = told.elapsed ?? this.elapsed;
    this.run = told.run ?? this.run;
    this.head = told.head ?? this.head;
    this.now = told.now ?? this.now;
    for (const [number, id, values, origin] of told.trials ?? []) Object.assign(this.trial(number), { id, values, origin });
    for (const row of told.rows ?? []) {
      const trial = this.trial(row[0]);
      this.run.fields.forEach((name, i) => { trial[name] = row[i]; });
    }
    for (const [number, start, xs, ys] of told.curves ?? []) replaceTail(this.trial(number), start, xs, ys);
    if (told.busy) replaceTail(this.busy, ...told.busy);
    for (const name of ["best", "failures", "commands"]) this[name].push(...(told[name] ?? []));
  }
}

function replaceTail(curve, start, xs, ys) {
  curve.xs.length = curve.ys.length = start;
  curve.xs.push(...xs);
  curve.ys.push(...ys);
}
