// The page at "/". Everything that comes from the server is inserted as text, never as HTML.
(() => {
  'use strict';

  const byId = (id) => document.getElementById(id);
  const kAlternatives = 5;  // of each token; completions allow no more
  const kFollowMs = 500;
  const kLeastTimedMs = 100;

  // Creates an element. Attributes whose value is null are left out; children are nodes or texts.
  const make = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };

  // One hue for each name, the same on every part of the page. A name gets its hue when it is first shown; the golden
  // angle keeps the hues of few names far apart.
  const hues = new Map();
  const hueOf = (name) => {
    if (!hues.has(name)) hues.set(name, hues.size * 137.5 % 360);
    return hues.get(name);
  };
  const coloured = (node, name) => {
    node.style.setProperty('--hue', hueOf(name));
    return node;
  };

  const headers = () => {
    const key = byId('key').value.trim();
    return {'content-type': 'application/json', ...(key ? {authorization: `Bearer ${key}`} : {})};
  };

  class Refusal extends Error {
    constructor(message, status = 0) {
      super(message);
      this.status = status;
    }
  }

  // The server's own sentence about a failed request, or one made from the status.
  const refusalOf = async (response) => {
    let message = '';
    try {
      message = (await response.json()).error.message;
    } catch {
      message = `The server answered with status ${response.status}.`;
    }
    if (response.status === 401) message += ' Enter a valid API key.';
    return new Refusal(message, response.status);
  };
  const sentenceOf = (error) => {
    if (error instanceof Refusal) return error.message;
    if (error instanceof TypeError) return 'The server cannot be reached. Is it still running?';
    return `The page could not read the answer: ${error.message}.`;
  };

  const ask = async (path, options = {}) => {
    const response = await fetch(path, {...options, headers: headers(), cache: 'no-store', credentials: 'same-origin'});
    if (!response.ok) throw await refusalOf(response);
    return response;
  };

  // ---- The choice of models ----

  const chosen = new Set();

  const chosenNames = () => [...document.querySelectorAll('#choices input:checked')].map((box) => box.value);

  const showModels = (models) => {
    const base = models.find((model) => model.root === model.id);
    if (chosen.size === 0 && base) chosen.add(base.id);
    const boxes = models.map((model) => {
      const box = make('input', {type: 'checkbox', value: model.id});
      box.checked = chosen.has(model.id);
      box.addEventListener('change', () => (box.checked ? chosen.add(model.id) : chosen.delete(model.id)));
      return make('label', {}, box, ' ', model.id, model === base ? ' (base)' : '');
    });
    byId('choices').replaceChildren(...boxes);
    byId('server').textContent = `${models.length} models are served.`;
    filterModels();
  };

  const filterModels = () => {
    const text = byId('find').value.toLowerCase();
    for (const label of byId('choices').children) {
      label.hidden = !label.querySelector('input').value.toLowerCase().includes(text);
    }
  };

  const loadModels = async () => {
    try {
      showModels((await (await ask('v1/models')).json()).data);
      byId('error').textContent = '';
    } catch (error) {
      byId('error').textContent = sentenceOf(error);
    }
  };

  const chooseShown = (checked) => {
    for (const label of byId('choices').children) {
      if (checked && label.hidden) continue;
      const box = label.querySelector('input');
      box.checked = checked;
      checked ? chosen.add(box.value) : chosen.delete(box.value);
    }
  };

  // ---- Tokens and their probabilities ----

  const bytesOf = (token) => {
    if (token.bytes) return Uint8Array.from(token.bytes);
    // A token that is a part of a character comes as "bytes:\xf0\x9f".
    if (/^bytes:(\\x[0-9a-f]{2})+$/.test(token.token)) {
      return Uint8Array.from(token.token.slice(6).split('\\x').slice(1), (hex) => parseInt(hex, 16));
    }
    return new TextEncoder().encode(token.token);
  };

  // The log probabilities of one event, in the form that chats have.
  const tokensOf = (choice) => {
    const given = choice.logprobs;
    if (!given) return [];
    if (given.content) return given.content;
    return given.tokens.map((token, i) => ({
      token,
      logprob: given.token_logprobs[i],
      top_logprobs: Object.entries((given.top_logprobs && given.top_logprobs[i]) || {})
        .map(([other, logprob]) => ({token: other, logprob})),
    }));
  };

  const bucketOf = (probability) => [0.1, 0.3, 0.6, 0.9].filter((bound) => probability >= bound).length;
  const percent = (probability) => `${(100 * probability).toFixed(probability < 0.0995 ? 2 : 1)} %`;
  const visible = (text) => text.replace(/\n/g, '\u21b5').replace(/\t/g, '\u21e5').replace(/^ | $/g, '\u2423') || '\u2205';

  // An answer's tokens as a list in which the arrow keys move.
  class HeatMap {
    constructor(text, others, name) {
      this.text = text;
      this.others = others;
      this.decoder = new TextDecoder();
      text.setAttribute('role', 'listbox');
      text.setAttribute('aria-label', `Tokens of ${name}`);
      text.addEventListener('keydown', (event) => this.onKey(event));
    }

    add(token) {
      const piece = this.decoder.decode(bytesOf(token), {stream: true});
      const probability = token.logprob === null ? 1 : Math.exp(token.logprob);
      const span = make('span', {
        class: `token p${bucketOf(probability)}`, role: 'option', 'aria-selected': 'false',
        tabindex: this.text.childElementCount === 0 ? '0' : '-1',
        'aria-label': `${visible(piece)}, ${percent(probability)}`,
      }, piece);
      const show = () => this.show(token, probability);
      span.addEventListener('pointerenter', show);
      span.addEventListener('focus', () => {
        for (const other of this.text.querySelectorAll('[tabindex="0"]')) {
          other.tabIndex = -1;
          other.setAttribute('aria-selected', 'false');
        }
        span.tabIndex = 0;
        span.setAttribute('aria-selected', 'true');
        show();
      });
      this.text.append(span);
    }

    onKey(event) {
      const moves = {ArrowRight: 'nextElementSibling', ArrowDown: 'nextElementSibling',
        ArrowLeft: 'previousElementSibling', ArrowUp: 'previousElementSibling'};
      const ends = {Home: 'firstElementChild', End: 'lastElementChild'};
      const target = moves[event.key] ? document.activeElement[moves[event.key]] :
        ends[event.key] ? this.text[ends[event.key]] : null;
      if (!target) return;
      event.preventDefault();
      target.focus();
    }

    show(token, probability) {
      const rows = [{token: token.token, logprob: token.logprob}, ...(token.top_logprobs || [])]
        .filter((one, i, all) => all.findIndex((other) => other.token === one.token) === i)
        .sort((a, b) => b.logprob - a.logprob)
        .map((one) => {
          const p = one.logprob === null ? 1 : Math.exp(one.logprob);
          return make('tr', {class: one.token === token.token ? 'taken' : null},
            make('th', {scope: 'row'}, visible(one.token)),
            make('td', {}, make('meter', {min: '0', max: '1', value: String(p), 'aria-hidden': 'true'})),
            make('td', {}, percent(p)));
        });
      const caption = make('caption', {}, `Here ${visible(token.token)} had ${percent(probability)}.`);
      this.others.replaceChildren(make('table', {class: 'others'}, caption, make('tbody', {}, ...rows)));
    }
  }

  // ---- Answers ----

  // One model's answer: its card, and the request that fills it.
  class Answer {
    constructor(name, heat) {
      this.name = name;
      this.text = make('p', {class: 'text'});
      this.figures = make('p', {class: 'figures'}, 'waiting');
      this.fault = make('p', {class: 'fault'});
      const others = make('div', {'aria-live': 'polite'});
      this.card = coloured(make('article', {class: 'card', 'aria-label': `Answer of ${name}`},
        make('h3', {}, name), this.text, this.figures, this.fault, others), name);
      this.heat = heat ? new HeatMap(this.text, others, name) : null;
      this.tokens = 0;
      this.reason = null;
    }

    async run(path, body, signal) {
      this.begun = performance.now();
      try {
        const response = await ask(path, {method: 'POST', body: JSON.stringify({...body, model: this.name}), signal});
        await this.read(response.body.getReader());
      } catch (error) {
        if (error.name === 'AbortError') this.reason = 'stopped';
        else this.fault.textContent = sentenceOf(error);
      }
      this.showFigures();
      return this.fault.textContent === '';
    }

    async read(reader) {
      const decoder = new TextDecoder();
      let waiting = '';
      for (;;) {
        const {done, value} = await reader.read();
        waiting += done ? decoder.decode() : decoder.decode(value, {stream: true});
        const events = waiting.split('\n\n');
        waiting = events.pop();
        for (const event of events) {
          const data = event.split('\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice(6)).join('\n');
          if (data === '[DONE]') return;
          if (data) this.onEvent(JSON.parse(data));
        }
        if (done) throw new Refusal('The answer broke off. The server may have stopped.');
      }
    }

    onEvent(event) {
      if (event.error) throw new Refusal(event.error.message);
      if (event.usage) this.tokens = event.usage.completion_tokens;
      for (const choice of event.choices) {
        const piece = (choice.delta ? choice.delta.content : choice.text) || '';
        const tokens = this.heat ? tokensOf(choice) : [];
        if (choice.finish_reason) this.reason = choice.finish_reason;
        if (!piece && tokens.length === 0) continue;
        this.last = performance.now();
        this.first ??= this.last;
        this.tokens += Math.max(tokens.length, this.heat ? 0 : 1);
        for (const token of tokens) this.heat.add(token);
        if (!this.heat) this.text.append(piece);
      }
      this.showFigures();
    }

    // Tokens a second after the first one. The pieces of a short answer may arrive together; its rate includes the wait.
    rate() {
      const generated = this.last - this.first;
      if (generated >= kLeastTimedMs) return (this.tokens - 1) * 1000 / generated;
      return this.tokens * 1000 / Math.max(this.last - this.begun, 1);
    }

    showFigures() {
      const parts = [];
      if (this.first) parts.push(`first token after ${Math.round(this.first - this.begun)} ms`);
      if (this.first) parts.push(`${this.rate().toFixed(1)} tokens/s`);
      if (this.tokens) parts.push(`${this.tokens} tokens`);
      const ends = {stop: 'complete', length: 'cut at the token limit', stopped: 'stopped'};
      if (this.reason) parts.push(ends[this.reason] || this.reason);
      if (parts.length) this.figures.textContent = parts.join(' \u00b7 ');
      else if (this.fault.textContent) this.figures.textContent = 'no answer';
    }
  }

  let running = null;  // the AbortController of the requests under way

  // The fields of the form as those of a request. Throws Refusal for a value out of range.
  const fieldsOf = () => {
    const fields = {};
    for (const input of byId('sampling').querySelectorAll('input')) {
      const valid = input.checkValidity();
      input.classList.toggle('invalid', !valid);
      if (!valid) {
        byId('sampling').open = true;
        input.focus();
        throw new Refusal(`${input.labels[0].textContent.trim()}: ${input.validationMessage}`);
      }
      if (input.value !== '') fields[input.name] = Number(input.value);
    }
    return fields;
  };

  const requestOf = (prompt, heat) => {
    const body = {...fieldsOf(), stream: true, stream_options: {include_usage: true}};
    if (byId('form').elements.kind.value === 'chat') {
      if (heat) Object.assign(body, {logprobs: true, top_logprobs: kAlternatives});
      return ['v1/chat/completions', {...body, messages: [{role: 'user', content: prompt}]}];
    }
    if (heat) body.logprobs = kAlternatives;
    return ['v1/completions', {...body, prompt}];
  };

  const send = async () => {
    if (running) return;
    byId('error').textContent = '';
    try {
      const names = chosenNames();
      const prompt = byId('prompt').value;
      if (names.length === 0) throw new Refusal('Choose at least one model.');
      if (prompt === '') throw new Refusal('Enter a prompt.');
      const heat = byId('heat').checked;
      const [path, body] = requestOf(prompt, heat);
      const answers = names.map((name) => new Answer(name, heat));
      byId('cards').replaceChildren(...answers.map((answer) => answer.card));
      byId('legend').hidden = !heat;
      running = new AbortController();
      byId('send').disabled = true;
      byId('stop').disabled = false;
      byId('status').textContent = `${names.length} ${names.length === 1 ? 'model answers' : 'models answer'}.`;
      const done = await Promise.all(answers.map((answer) => answer.run(path, body, running.signal)));
      const good = done.filter((one) => one).length;
      byId('status').textContent = running.signal.aborted ? 'Stopped.' :
        good === done.length ? 'All answers are complete.' : `${good} of ${done.length} answers are complete.`;
    } catch (error) {
      byId('error').textContent = sentenceOf(error);
    }
    running = null;
    byId('send').disabled = false;
    byId('stop').disabled = true;
  };

  const stop = () => running && running.abort();

  // ---- The server now ----

  const mebibytes = (bytes) => `${(bytes / 1048576).toFixed(bytes < 10485760 ? 1 : 0)} MiB`;

  // A bar with a share that is in use and one that is kept for reuse.
  const barOf = (title, used, kept, total, text) => make('div', {}, make('h3', {}, `${title}: ${text}`), (() => {
    const bar = make('div', {class: 'bar', 'aria-hidden': 'true'});
    for (const [share, name] of [[used, null], [kept, 'kept']]) {
      const part = make('i', {class: name});
      part.style.width = `${total > 0 ? Math.min(100, 100 * share / total) : 0}%`;
      bar.append(part);
    }
    return bar;
  })());

  const showBatch = (batch) => {
    const counts = new Map();
    const squares = [];
    for (const sequence of batch.sequences) {
      counts.set(sequence.model, (counts.get(sequence.model) || 0) + 1);
      const kind = !sequence.in_step ? 'paused' : sequence.phase === 'context' ? 'context' : null;
      squares.push(coloured(make('i', {class: kind}), sequence.model));
    }
    for (let i = squares.length; i < Math.min(batch.max_batch_size, 256); ++i) squares.push(make('i', {class: 'empty'}));
    byId('batch').replaceChildren(...squares);
    byId('batch-legend').replaceChildren(...[...counts].sort().map(([name, count]) =>
      coloured(make('li', {}, `${name}: ${count}`), name)));
    const running = batch.sequences.filter((sequence) => sequence.in_step).length;
    byId('live-text').textContent =
      `${running === 0 ? 'No sequence runs' : running === 1 ? '1 sequence runs' : `${running} sequences share the step`}; ` +
      `${batch.waiting} wait.`;
  };

  const showCaches = (batch) => {
    const kv = batch.kv_cache;
    const free = Math.max(0, kv.total_blocks - kv.used_blocks - kv.cached_blocks);
    const parts = [barOf('KV cache', kv.used_blocks, kv.cached_blocks, kv.total_blocks,
      `${kv.used_blocks} blocks in use, ${kv.cached_blocks} kept for reuse, ${free} free`)];
    const cache = batch.adapter_cache;
    if (cache) {
      parts.push(barOf('Adapter cache', cache.used_bytes, 0, cache.total_bytes,
        `${mebibytes(cache.used_bytes)} of ${mebibytes(cache.total_bytes)}`));
      parts.push(make('ul', {class: 'names'}, ...cache.adapters.map((adapter) => coloured(
        make('li', {class: adapter.in_use ? null : 'idle'}, `${adapter.name}: ${adapter.in_use ? 'in use' : 'idle'}, ${adapter.state}, ${mebibytes(adapter.bytes)}`),
        adapter.name))));
    }
    byId('caches').replaceChildren(...parts);
  };

  // Asks for the state of the server again and again while the page is seen.
  const follow = async () => {
    if (byId('follow').checked && document.visibilityState === 'visible') {
      try {
        const batch = await (await ask('v1/batch')).json();
        byId('live').hidden = false;
        showBatch(batch);
        showCaches(batch);
      } catch (error) {
        if (error.status === 404) {  // the server does not show its state
          byId('live').hidden = true;
          return;
        }
        byId('live-text').textContent = sentenceOf(error);
        for (const id of ['batch', 'batch-legend', 'caches']) byId(id).replaceChildren();
      }
    }
    setTimeout(follow, kFollowMs);
  };

  // ---- Events ----

  byId('form').addEventListener('submit', (event) => {
    event.preventDefault();
    send();
  });
  byId('stop').addEventListener('click', stop);
  byId('all').addEventListener('click', () => chooseShown(true));
  byId('none').addEventListener('click', () => chooseShown(false));
  byId('reload').addEventListener('click', loadModels);
  byId('find').addEventListener('input', filterModels);
  byId('key').addEventListener('change', loadModels);
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) send();
    if (event.key === 'Escape') stop();
  });
  loadModels();
  follow();
})();
