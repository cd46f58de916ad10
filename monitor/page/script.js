'use strict';
// The page asks its own server for the present (HTML, rendered and escaped there) and for the history
// (numbers), and draws the curves. It shows no value longer than the server stands by it.
(() => {
  const pollMilliseconds = 2000, answerMilliseconds = 5000;
  const tokenKey = 'walrelay-token';
  const $ = (id) => document.getElementById(id);
  const shown = new Map(); // the HTML of each section as it came
  for (const section of document.querySelectorAll('main > section')) shown.set(section.id, section.outerHTML);
  let history = {began: '', interval_seconds: 5, samples: []};
  let answered = null; // when the server last did
  let skew = 0; // milliseconds that its clock is ahead of ours
  let timer = 0, polling = false;

  async function ask(path) {
    const token = sessionStorage.getItem(tokenKey);
    const response = await fetch(path, {
      cache: 'no-store', credentials: 'omit', redirect: 'error', signal: AbortSignal.timeout(answerMilliseconds),
      headers: token ? {Authorization: 'Bearer ' + token} : {},
    });
    if (response.status === 401) throw new Locked();
    if (!response.ok) throw new Error('the server answers with status ' + response.status);
    return response;
  }
  class Locked extends Error {}

  async function poll() {
    if (polling) return;
    polling = true;
    clearTimeout(timer);
    await renew();
    polling = false;
    if ($('unlock').hidden && !document.hidden) timer = setTimeout(poll, pollMilliseconds);
  }

  async function renew() {
    try {
      const summary = await (await ask('status/summary')).text();
      await update();
      answered = new Date();
      replace(summary);
      $('gone').hidden = true;
      $('unlock').hidden = true;
    } catch (error) {
      if (error instanceof Locked) return lock();
      gone(error);
    }
    draw();
  }

  // update fetches the samples that are not here yet.
  async function update() {
    const last = history.samples.at(-1);
    const response = await ask('status/history?after=' + (last ? last.n : 0));
    const more = await response.json();
    const date = Date.parse(response.headers.get('Date'));
    if (date) skew = date - Date.now();
    if (more.began !== history.began && last) { // another process, which counts anew
      history = {began: '', interval_seconds: 5, samples: []};
      return update();
    }
    const ours = history.samples;
    for (const s of more.samples) ours.push({...s, time: Date.parse(s.at)});
    history = {...more, samples: ours.slice(-360)};
  }

  // replace renews the sections that changed, and leaves the others and what is selected in them alone.
  function replace(html) {
    const parsed = new DOMParser().parseFromString(html, 'text/html');
    for (const section of [...parsed.body.children]) {
      if (shown.get(section.id) === section.outerHTML) continue;
      shown.set(section.id, section.outerHTML);
      $(section.id).replaceWith(section);
    }
    const badge = document.querySelector('#state .badge'), stream = document.querySelector('#details h2');
    document.title = `${badge.textContent} – ${stream.textContent} – walrelay`;
  }

  // gone says so, and takes every value away: one that is not renewed would be taken for true.
  function gone(error) {
    forget();
    const box = $('gone');
    const cause = error.name === 'TimeoutError' ? 'it is silent' : error.message;
    box.textContent = (answered ? `No answer since ${answered.toISOString().slice(11, 19)} UTC` : 'No answer') +
      `: walrelay has stopped, or the way to it is cut (${cause}).`;
    box.hidden = false;
    document.title = '✗ no answer – walrelay';
  }

  function forget() {
    shown.clear();
    for (const value of document.querySelectorAll('main .v')) value.textContent = '–';
    document.querySelector('#figures .note')?.remove();
    const badge = document.querySelector('#state .badge');
    if (badge) [badge.textContent, badge.className] = ['? no answer', 'badge bad'];
  }

  function lock() {
    $('refused').textContent = sessionStorage.getItem(tokenKey) ? 'The server refuses this token.' : '';
    sessionStorage.removeItem(tokenKey);
    history = {began: '', interval_seconds: 5, samples: []};
    shown.clear();
    for (const id of ['state', 'attention', 'figures', 'slot', 'instances', 'details']) $(id).replaceChildren();
    $('gone').hidden = true;
    $('unlock').hidden = false;
    document.title = 'walrelay';
    draw();
  }

  $('unlock').addEventListener('submit', (event) => {
    event.preventDefault();
    sessionStorage.setItem(tokenKey, $('token').value.trim());
    $('token').value = '';
    poll();
  });

  const three = (x) => Number.isInteger(x) || x >= 99.95 ? x.toFixed(0) : x.toFixed(x >= 9.995 ? 1 : 2);
  const units = {
    bytes(x) {
      let unit = 0;
      for (; x >= 999.5 && unit < 5; unit++) x /= 1024;
      return three(x) + ' ' + ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][unit];
    },
    span(x) {
      if (x === 0) return '0 s';
      if (x < 0.9995) return three(x * 1000) + ' ms';
      if (x < 60) return three(x) + ' s';
      if (x < 3600) return three(x / 60) + ' min';
      return x < 86400 ? three(x / 3600) + ' h' : three(x / 86400) + ' d';
    },
    rate: (x) => (x < 9999.5 ? three(x) : x < 999500 ? three(x / 1e3) + ' k' : three(x / 1e6) + ' M') + '/s',
  };

  // ceiling is the next round number for the end of an axis.
  function ceiling(x, unit) {
    if (!(x > 0)) return unit === 'bytes' ? 1024 : 1;
    const base = unit === 'bytes' ? 2 ** Math.floor(Math.log2(x)) : 10 ** Math.floor(Math.log10(x));
    return base * [1, 1.5, 2, 2.5, 5, 10].find((step) => base * step >= x);
  }

  function element(name, attributes, text) {
    const e = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    if (text !== undefined) e.textContent = text;
    return e;
  }

  function draw() {
    for (const figure of document.querySelectorAll('#charts figure')) chart(figure);
  }

  // path connects the points. It breaks where the value was not known: a silent database, a long pause; but
  // not between two readings of a database that was just not asked meanwhile.
  function path(samples, key, x, y) {
    const bridge = Math.max(90, 3 * history.interval_seconds) * 1000;
    let d = '', before = null;
    for (const s of samples) {
      const value = s[key];
      if (value === null) {
        if (s.silent || !key.endsWith('_bytes')) before = null;
        continue;
      }
      const at = `${x(s.time).toFixed(1)},${y(value).toFixed(1)}`;
      d += before !== null && s.time - before <= bridge ? `L${at}` : `M${at}h0.01`;
      before = s.time;
    }
    return d;
  }

  function chart(figure) {
    const {keys, names, unit} = figure.dataset, all = keys.split(' '), labels = (names || '').split(', ');
    const samples = history.samples, width = Math.max(figure.clientWidth - 18, 200), height = 144;
    const now = Date.now() + skew, left = 62, right = 8, top = 8, bottom = 22;
    // From two minutes to half an hour, and no further back than there is something.
    const span = Math.min(Math.max(now - (samples[0]?.time ?? now), 120e3), 1800e3);
    const visible = samples.filter((s) => s.time >= now - span);
    const values = visible.flatMap((s) => all.map((key) => s[key])).filter((v) => v !== null);
    const highest = values.reduce((a, b) => Math.max(a, b), 0), end = ceiling(highest, unit);
    const x = (time) => left + (width - left - right) * (1 - (now - time) / span);
    const y = (value) => top + (height - top - bottom) * (1 - value / end);

    const svg = element('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img'});
    for (const s of visible.filter((s) => !s.ready)) {
      const from = Math.max(x(s.time - history.interval_seconds * 1000), left);
      svg.append(element('rect', {class: 'unready', x: from, y: top, width: Math.max(x(s.time) - from, 0), height: height - top - bottom}));
    }
    for (const part of [0, 0.5, 1]) {
      svg.append(element('line', {class: 'grid', x1: left, x2: width - right, y1: y(end * part), y2: y(end * part)}),
        element('text', {x: left - 4, y: y(end * part) + 4, 'text-anchor': 'end'}, units[unit](end * part)),
        element('text', {x: x(now - span * (1 - part)), y: height - 6, 'text-anchor': ['start', 'middle', 'end'][part * 2]},
          part === 1 ? 'now' : '−' + units.span(span / 1000 * (1 - part))));
    }
    all.forEach((key, i) => svg.append(element('path', {class: 'curve ' + ['first', 'second'][i], d: path(visible, key, x, y)})));

    const last = samples.at(-1), fresh = last && now - last.time < 3000 * history.interval_seconds && $('gone').hidden;
    const text = all.map((key, i) => {
      const value = fresh && last[key] !== null ? units[unit](last[key]) : 'not known';
      return (all.length > 1 ? `${['—', '- -'][i]} ${labels[i]} ` : 'now ') + value;
    }).join(', ') + (values.length ? `; highest ${units[unit](highest)}` : '');
    svg.setAttribute('aria-label', figure.querySelector('figcaption').textContent + ': ' + text);
    const output = document.createElement('output');
    output.textContent = text;
    output.setAttribute('aria-live', 'off');
    figure.replaceChildren(figure.querySelector('figcaption'), svg, output);
  }

  document.addEventListener('visibilitychange', () => { if (!document.hidden) poll(); });
  addEventListener('resize', draw);
  poll();
})();
