// The page of the command interface: routes after the '#' of the address, one function per view.
// All data enters the document as text, never as markup. The browser keeps the sign-in for the
// session, and only our own requests carry it, so that no other site can use it.

const REFRESH_MS_DEFAULT = 30000;
const AGAIN_MS = 5000;
const PAGE_SIZE = 20;
// Maximum number of queues per search for tasks of one status.
const QUEUES_AT_ONCE = 500;
const STATUS_NAMES = new Map([
  [-6, 'orphaned'], [-5, 'cancelled'], [-4, 'blocked'], [-3, 'terminated'], [-2, 'queued'],
  [-1, 'claimed'], [0, 'running'], [1, 'succeeded'], [2, 'failed'],
]);

const main = document.getElementById('main');
const trouble = document.getElementById('trouble');
let refreshMs = REFRESH_MS_DEFAULT;
let timer = 0;
let shown = 0; // incremented by each view, so that a late answer does not replace a newer view
let owed = false; // a view was postponed because the user was editing
let changes = 0; // number of changes in progress
let lastChange = Promise.resolve();
let troubleOfView = false; // the error came from a view, so the next view clears it
let place = ''; // the address of the current view
let settled = false; // the current view needs no refresh

// --- requests to the server ---------------------------------------------------------------------

class SignInNeeded extends Error {}

async function ask(method, path, body) {
  const headers = { Accept: 'application/json' };
  const sign = sessionStorage.getItem('sign');
  if (sign) headers.Authorization = sign;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let answer;
  try {
    answer = await fetch(path, {
      method, headers, credentials: 'omit', cache: 'no-store',
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Error('The server does not answer.');
  }
  if (answer.status === 401) throw new SignInNeeded();
  const text = await answer.text();
  let value = null;
  try { value = text === '' ? null : JSON.parse(text); } catch { /* reported below */ }
  if (!answer.ok) {
    const told = value && value.error;
    const why = typeof told === 'string' ? told : told ? JSON.stringify(told) : text.slice(0, 300);
    throw new Error(`${why || 'refused'} (${answer.status})`);
  }
  return value;
}

// An id is either plain or in extended JSON.
const hex = (id) => id?.$oid ?? id;

// Queues sorted by name, with labels that tell them apart, but without counts, which would require
// reading every task.
const byName = (queues) => queues.sort((one, other) =>
  String(one.name).localeCompare(String(other.name), undefined, { numeric: true }));
const queueNames = async () => byName(await ask('GET', '/queues?.terse=1'));

const query = (fields) => {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    if (value === '' || value === undefined || value === null) continue;
    for (const each of [value].flat()) search.append(name, each);
  }
  return search.toString();
};

// --- building the document -----------------------------------------------------------------------

function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'class') element.className = value;
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== undefined && value !== null) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const table = (names, rows) => h('div', { class: 'scroll' }, h('table', {},
  h('thead', {}, h('tr', {}, names.map((name) =>
    h('th', { class: name.number ? 'number' : '', scope: 'col' }, name.text ?? name)))),
  h('tbody', {}, rows)));

const number = (text) => ({ text, number: true });

function statusText(status) {
  const name = STATUS_NAMES.get(status) ?? (status > 2 ? 'failed' : 'parked');
  const look = status === 1 ? 'good' : status > 1 || status === -6 ? 'bad' : 'wait';
  return h('span', { class: look }, `${name} (${status})`);
}

function time(value) {
  if (value === null || value === undefined || value === 0) return h('span', { class: 'soft' }, '—');
  const at = new Date(typeof value === 'number' && value < 1e11 ? value * 1000 : value);
  if (Number.isNaN(at.getTime())) return String(value);
  const iso = at.toISOString();
  return h('time', { datetime: iso, title: iso }, iso.slice(0, 19).replace('T', ' '));
}

function complain(error, ofView = false) {
  trouble.hidden = false;
  trouble.textContent = error.message;
  troubleOfView = ofView;
}

// Runs `work` or shows its error. Automatic refreshes do not hide the errors of user actions.
async function act(work, byItself = false, ofView = false) {
  try {
    if (!byItself) trouble.hidden = true;
    await work();
    if (byItself && troubleOfView) trouble.hidden = true;
    return true;
  } catch (error) {
    if (error instanceof SignInNeeded) signIn(); else complain(error, ofView);
    return false;
  }
}

// Sends a change. Changes are sent one after another, so that the last one wins; a view that was
// requested before is outdated and not shown.
async function change(work) {
  changes += 1;
  shown += 1;
  const turn = lastChange.then(work);
  lastChange = turn.catch(() => {});
  const done = await act(() => turn);
  changes -= 1;
  if (done) show(true); else showLater();
  return done;
}

// An editable table field. It is saved when it loses the focus; Escape reverts it.
function editable({ value, label, kind, save, none = 'none' }) {
  let before = value === null || value === undefined ? '' : String(value);
  const input = h('input', {
    type: kind, value: before, 'aria-label': label, autocomplete: 'off',
    ...(kind === 'number' ? { min: 0, step: 1, placeholder: none } : { title: before }),
    // Scrolling the page must not change the number under the pointer.
    onwheel: () => input.blur(),
  });
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Enter') input.blur();
    if (event.key === 'Escape') { input.value = before; input.blur(); }
  });
  input.addEventListener('change', async () => {
    if (!input.validity.valid) {
      input.setAttribute('aria-invalid', 'true');
      complain(new Error(`${label}: a whole number that is not negative, or nothing.`));
      return;
    }
    const text = input.value.trim();
    const wanted = kind === 'number' ? (text === '' ? null : Number(text)) : text;
    input.removeAttribute('aria-invalid');
    if (await change(() => save(wanted))) before = text;
    else input.setAttribute('aria-invalid', 'true');
  });
  return input;
}

// --- views -----------------------------------------------------------------------------------------

async function queuesView() {
  // Counting very many tasks may take too long; limits can be changed anyway.
  let uncounted = null;
  const counted = ask('GET', '/queues').then(byName).catch((error) => {
    if (error instanceof SignInNeeded) throw error;
    uncounted = h('p', { class: 'bad' }, `Tasks are not counted: ${error.message}`);
    return queueNames();
  });
  const [queues, plugins] = await Promise.all([counted, ask('GET', '/plugins')]);
  const save = (queue, field) => (value) =>
    ask('POST', `/queues/${encodeURIComponent(queue.id)}`, { [field]: value });
  const rows = queues.map((queue) => {
    const limit = 'maxthreads' in queue ? 'maxthreads' : 'threads';
    // Every object inherits `constructor`; only an own property is the field.
    const plugin = Object.hasOwn(queue, 'constructor') ? 'constructor' : 'plugin';
    return h('tr', { 'data-queue': queue.name },
      h('td', { class: 'name' }, editable({ value: queue.name, label: `Name of ${queue.name}`, kind: 'text',
        save: save(queue, 'name') })),
      h('td', {}, pluginChoice(queue, plugin, plugins, save(queue, plugin))),
      h('td', { class: 'number' }, editable({ value: queue[limit], kind: 'number',
        label: `Limit of ${queue.name}`, save: save(queue, limit),
        // Without `threads` nothing runs, without `maxthreads` there is no limit.
        none: limit === 'threads' ? '0' : 'none' })),
      h('td', { class: 'number' }, String(queue.queued ?? queue.tasks_todo ?? '')),
      h('td', { class: 'number' }, String(queue.running ?? queue.tasks_doing ?? '')),
      h('td', { class: 'number' }, String(queue.completed ?? queue.tasks_done ?? '')),
      h('td', { class: `number ${queue.orphaned ? 'bad' : ''}` }, String(queue.orphaned ?? '')),
      h('td', { class: 'acts' },
        h('a', { href: `#/tasks?${query({ queue: queue.id })}` }, 'tasks'), ' ',
        h('button', { type: 'button', 'aria-label': `Delete ${queue.name}`,
          onclick: () => deleteQueue(queue) }, 'Delete')));
  });
  const names = ['Queue', 'Plugin', number('Limit'), number('Queued'), number('Running'),
    number('Completed'), number('Orphaned'), ''];
  return [
    h('div', { class: 'row' },
      h('button', { class: 'main', type: 'button', onclick: () => newQueue(plugins) }, 'New queue'),
      h('span', { class: 'soft' }, `${queues.length} ${queues.length === 1 ? 'queue' : 'queues'}`)),
    uncounted,
    queues.length ? table(names, rows) : h('p', {}, 'There is no queue yet.'),
  ];
}

function pluginChoice(queue, field, plugins, save) {
  let now = queue[field] ?? '';
  const names = plugins.includes(now) ? plugins : [now, ...plugins];
  const select = h('select', { 'aria-label': `Plugin of ${queue.name}` },
    names.map((name) => h('option', { value: name, selected: name === now }, name)));
  // The arrow keys pass every name on the way, so a choice made with the keyboard is saved only when
  // the list loses the focus.
  let keys = false;
  const saveNow = async () => {
    const wanted = select.value;
    if (wanted === now) return;
    if (await change(() => save(wanted))) now = wanted; else select.value = now;
  };
  select.addEventListener('keydown', (event) => {
    keys = true;
    if (event.key === 'Enter') saveNow();
    if (event.key === 'Escape') select.value = now;
  });
  select.addEventListener('pointerdown', () => { keys = false; });
  select.addEventListener('change', () => { if (!keys) saveNow(); });
  select.addEventListener('blur', saveNow);
  return select;
}

function askInDialog(title, button, fields, work) {
  const form = h('form', { class: 'form', method: 'dialog' }, h('h2', {}, title), fields,
    h('p', { class: 'bad', role: 'alert' }),
    h('div', { class: 'row' },
      h('button', { class: 'main', type: 'submit' }, button),
      h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel')));
  const dialog = h('dialog', { onclose: () => { dialog.remove(); show(); } }, form);
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const send = form.querySelector('[type=submit]');
    if (send.disabled) return;
    send.disabled = true;
    try {
      await work(new FormData(form));
      dialog.close();
    } catch (error) {
      if (error instanceof SignInNeeded) { dialog.close(); return; }
      form.querySelector('[role=alert]').textContent = error.message;
      send.disabled = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
}

function newQueue(plugins) {
  askInDialog('New queue', 'Create', [
    plugins.length ? null : h('p', { class: 'bad' }, 'The configuration lists no plugins.'),
    h('label', {}, 'Name', h('input', { name: 'name', required: true, autocomplete: 'off' })),
    h('label', {}, 'Plugin', h('select', { name: 'plugin' },
      plugins.map((name) => h('option', { value: name }, name)))),
    h('label', {}, 'Limit (tasks at once)',
      h('input', { name: 'threads', type: 'number', min: 0, step: 1, value: 1 })),
    h('label', {}, 'Order', h('select', { name: 'sort' },
      ['default', 'fifo', 'lifo'].map((name) => h('option', { value: name }, name)))),
  ], (form) => {
    const queue = { name: form.get('name'), plugin: form.get('plugin'), sort: form.get('sort') };
    if (form.get('threads') !== '') queue.threads = Number(form.get('threads'));
    return ask('POST', '/queues', queue);
  });
}

function deleteQueue(queue) {
  askInDialog(`Delete the queue ${queue.name}`, 'Delete', [
    h('label', {}, 'Its tasks', h('select', { name: 'tasks' },
      h('option', { value: '' }, 'refuse when there are any'),
      h('option', { value: 'delete' }, 'delete them too'),
      h('option', { value: 'keep' }, 'keep them without a queue'))),
  ], (form) => {
    const how = query({ tasks: form.get('tasks') });
    return ask('DELETE', `/queues/${encodeURIComponent(queue.id)}${how && `?${how}`}`);
  });
}

async function nodesView() {
  const nodes = await ask('GET', '/nodes');
  const rows = (wanted) => nodes.filter((node) => Boolean(node.live) === wanted).map((node) =>
    h('tr', { 'data-node': node.node },
      h('td', { class: 'name' },
        h('a', { href: `#/tasks?${query({ node: node.node })}` }, node.node)),
      h('td', {}, time(node.timestamp)),
      h('td', { class: 'number' }, editable({ value: node.maxthreads, kind: 'number',
        label: `Limit of ${node.node}`,
        save: (value) => ask('POST', `/nodes/${encodeURIComponent(node.id ?? node.node)}`,
          { maxthreads: value }) }))));
  const part = (title, id, wanted) => {
    const found = rows(wanted);
    return h('section', { id }, h('h2', {}, `${title} (${found.length})`),
      found.length ? table(['Node', 'Last seen (UTC)', number('Limit')], found) : null);
  };
  return [part('Live', 'live', true), part('Not running', 'dead', false)];
}

async function tasksView(fields) {
  const queues = await queueNames();
  const names = new Map(queues.map((queue) => [queue.id, queue.name]));
  const wanted = {
    id: fields.get('id') ?? '', queue: fields.get('queue') ?? '',
    status: fields.get('status') ?? '', node: fields.get('node') ?? '',
  };
  const skip = Math.max(0, Number(fields.get('skip')) || 0);
  const { id, queue, status, node } = wanted;
  const form = searchForm(queues, wanted);
  const hint = (text) => [form, h('p', { class: 'soft' }, text)];
  if (id || queue || node) return [form, await found(wanted, wanted, skip, names)];
  if (!status) return hint('Choose a queue, a status, a node or an id.');
  // No index covers a status alone.
  if (queues.length > QUEUES_AT_ONCE) return hint('Choose a queue, too: there are very many.');
  if (!queues.length) return hint('No task was found.');
  const all = queues.map((each) => each.id);
  return [form, await found(wanted, { ...wanted, queue: all }, skip, names)];
}

function searchForm(queues, wanted) {
  const form = h('form', { class: 'row', id: 'search' },
    h('label', {}, 'Queue', h('select', { name: 'queue' }, h('option', { value: '' }, 'any'),
      queues.map((queue) =>
        h('option', { value: queue.id, selected: queue.id === wanted.queue }, queue.name)))),
    h('label', {}, 'Status', h('select', { name: 'status' }, h('option', { value: '' }, 'any'),
      [...STATUS_NAMES].map(([code, name]) =>
        h('option', { value: code, selected: String(code) === wanted.status },
          `${name} (${code})`)))),
    h('label', {}, 'Node', h('input', { name: 'node', value: wanted.node })),
    h('label', {}, 'Id', h('input', { name: 'id', value: wanted.id, size: 26 })),
    h('button', { class: 'main', type: 'submit' }, 'Search'),
    h('button', { type: 'button', disabled: !queues.length,
      onclick: () => newTasks(queues, wanted.queue) }, 'New task'));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const asked = query(Object.fromEntries(new FormData(form)));
    if (location.hash === `#/tasks?${asked}`) show(); else location.hash = `#/tasks?${asked}`;
  });
  return form;
}

async function found(wanted, asked, skip, names) {
  // One more than a page, to know whether there is another page; never 1, which changes the form of
  // the answer.
  const options = { '.limit': PAGE_SIZE + 1, '.skip': skip, '.terse': 1 };
  const answer = await ask('GET', `/tasks?${query({ ...asked, ...options })}`);
  const tasks = Array.isArray(answer) ? answer : answer?._id ? [answer] : [];
  if (!tasks.length) return h('p', {}, 'No task was found.');
  const rows = tasks.slice(0, PAGE_SIZE).map((task) => {
    const id = hex(task._id);
    return h('tr', {},
      h('td', { class: 'id' }, h('a', { href: `#/task/${id}` }, id)),
      h('td', {}, names.get(hex(task.queue)) ?? hex(task.queue) ?? ''),
      h('td', {}, statusText(task.status)),
      h('td', {}, typeof task.node === 'string' ? task.node : ''),
      h('td', {}, time(task.ctime)), h('td', {}, time(task.mtime)));
  });
  const page = (text, at, able) => h('button', { type: 'button', disabled: !able, onclick: () => {
    location.hash = `#/tasks?${query({ ...wanted, skip: at || '' })}`;
  } }, text);
  return [
    table(['Task', 'Queue', 'Status', 'Node', 'Created (UTC)', 'Changed (UTC)'], rows),
    h('div', { class: 'row' },
      page('Earlier', Math.max(0, skip - PAGE_SIZE), skip > 0),
      h('span', { class: 'soft' }, `${skip + 1} to ${skip + rows.length}`),
      page('Further', skip + PAGE_SIZE, tasks.length > PAGE_SIZE)),
  ];
}

function newTasks(queues, queue) {
  askInDialog('New tasks', 'Create', [
    h('label', {}, 'Queue', h('select', { name: 'queue' }, queues.map((each) =>
      h('option', { value: each.id, selected: each.id === queue }, each.name)))),
    h('label', {}, 'Arguments: one JSON object, or a list of them',
      h('textarea', { name: 'params', spellcheck: 'false' }, '{\n  "key": "value"\n}')),
  ], (form) => {
    let params;
    try { params = JSON.parse(form.get('params')); } catch (error) {
      throw new Error(`The arguments are not JSON: ${error.message}`);
    }
    const list = Array.isArray(params) ? params : [params];
    return ask('POST', '/tasks', { queue: form.get('queue'), params: list });
  });
}

// A line of a list, if there is a value.
const fact = (name, value, shown = String) => value === undefined || value === null ? []
  : [h('dt', {}, name), h('dd', {}, shown(value))];

async function taskView(id, fields) {
  const full = fields.get('full') === '1';
  const path = `/tasks/${encodeURIComponent(id)}${full ? '?.full=1' : ''}`;
  const [task, queues] = await Promise.all([ask('GET', path), queueNames()]);
  const queue = queues.find((each) => each.id === hex(task.queue));
  // A node may take seconds to end a task.
  const order = async (event, name) => {
    event.target.disabled = true;
    await act(() => ask('POST', `/tasks/${encodeURIComponent(id)}/${name}`, {}));
    show();
  };
  const waits = [-4, -2, -1, 0].includes(task.status);
  const ended = task.status >= 1 || task.status === -5 || task.status === -6;
  const output = (name) => {
    const text = task[name];
    const file = Boolean(text?.$oid);
    return h('section', { id: name }, h('h2', {}, name),
      file ? h('p', {}, 'It is long. ', h('a', { href: `#/task/${id}?full=1` }, 'Show it'))
        : text ? h('pre', {}, String(text)) : h('p', { class: 'soft' }, 'nothing'));
  };
  const parts = [
    h('h2', {}, 'Task ', h('code', {}, id)),
    h('dl', {},
      h('dt', {}, 'Status'), h('dd', { id: 'status' }, statusText(task.status)),
      h('dt', {}, 'Queue'), h('dd', {}, queue
        ? h('a', { href: `#/tasks?${query({ queue: queue.id })}` }, queue.name)
        : `${hex(task.queue)} (there is no such queue)`),
      h('dt', {}, 'Node'), h('dd', {}, typeof task.node === 'string' ? task.node : '—'),
      h('dt', {}, 'Created (UTC)'), h('dd', {}, time(task.ctime)),
      h('dt', {}, 'Changed (UTC)'), h('dd', {}, time(task.mtime)),
      fact('Started (UTC)', task.windlass?.started, time),
      fact('Ended (UTC)', task.windlass?.ended, time),
      fact('Exit of the program', task.cmdErr === '<nil>' ? task.cmdExit : task.cmdErr)),
    h('div', { class: 'row' },
      h('button', { type: 'button', disabled: !waits, onclick: (event) => order(event, 'cancel') }, 'Cancel'),
      h('button', { type: 'button', disabled: !ended, onclick: (event) => order(event, 'retry') }, 'Retry')),
    h('section', { id: 'params' }, h('h2', {}, 'Arguments'),
      h('pre', {}, JSON.stringify(task.params ?? task.parameters ?? null, null, 2))),
    output('stdout'), output('stderr'),
  ];
  return { parts, settled: ended };
}

function signIn() {
  clearTimeout(timer);
  const form = h('form', { class: 'form', id: 'sign' }, h('h2', {}, 'Sign in'),
    h('label', {}, 'Name (empty when you have a token)',
      h('input', { name: 'name', autocomplete: 'username' })),
    h('label', {}, 'Password or token', h('input',
      { name: 'secret', type: 'password', required: true, autocomplete: 'current-password' })),
    h('div', { class: 'row' }, h('button', { class: 'main', type: 'submit' }, 'Sign in')));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const { name, secret } = Object.fromEntries(new FormData(form));
    // Headers and base64 need bytes, one per character.
    const bytes = (text) => Array.from(new TextEncoder().encode(text),
      (byte) => String.fromCharCode(byte)).join('');
    const basic = () => btoa(bytes(`${name}:${secret}`));
    sessionStorage.setItem('sign', name ? `Basic ${basic()}` : `Bearer ${bytes(secret)}`);
    try {
      await start();
    } catch (error) {
      sessionStorage.removeItem('sign');
      complain(error instanceof SignInNeeded ? new Error('Name or password is wrong.') : error);
    }
  });
  shown += 1;
  place = '';
  main.replaceChildren(form);
  form.elements.name.focus();
  document.getElementById('leave').hidden = true;
}

// --- navigation -------------------------------------------------------------------------------------

function view() {
  const [path, search] = location.hash.replace(/^#/, '').split('?');
  const fields = new URLSearchParams(search ?? '');
  if (path.startsWith('/task/')) return ['tasks', () => taskView(path.slice(6), fields)];
  if (path === '/tasks') return ['tasks', () => tasksView(fields)];
  if (path === '/nodes') return ['nodes', nodesView];
  return ['queues', queuesView];
}

// Whether the user is typing or selecting text, or a change is in progress: then the view must not be
// replaced.
const busy = () => changes > 0 || document.querySelector('dialog[open]')
  || main.contains(document.activeElement)
  && document.activeElement.matches('input, select, textarea')
  || !getSelection().isCollapsed && main.contains(getSelection().anchorNode);

// A label that identifies an element even after the view was rebuilt.
const called = (element) => ['aria-label', 'href', 'name'].map((name) => element.getAttribute(name))
  .find((name) => name) ?? element.textContent;

function replace(parts) {
  const focused = main.contains(document.activeElement) ? called(document.activeElement) : null;
  main.replaceChildren(...[parts].flat(2).filter((part) => part !== null));
  if (focused === null) return;
  const found = [...main.querySelectorAll('a, button, input, select')]
    .find((element) => called(element) === focused);
  (found ?? main).focus({ preventScroll: true });
}

async function show(byItself = false) {
  clearTimeout(timer);
  const [name, build] = view();
  for (const link of document.querySelectorAll('nav a')) {
    const here = link.hash === `#/${name}`;
    if (here) link.setAttribute('aria-current', 'page'); else link.removeAttribute('aria-current');
  }
  document.title = `${name} · ${document.getElementById('database').textContent} · Windlass`;
  const mine = shown += 1;
  const here = location.hash;
  // A view of another address is replaced even while the user is editing.
  const mayWait = () => byItself && place === here && Boolean(busy());
  owed = mayWait();
  if (!owed) {
    main.setAttribute('aria-busy', 'true');
    const done = await act(async () => {
      settled = false;
      const built = await build();
      if (mine !== shown) return;
      owed = mayWait();
      if (owed) return;
      place = here;
      settled = Boolean(built.settled);
      replace(built.parts ?? built);
      document.getElementById('fresh').textContent =
        `as of ${new Date().toLocaleTimeString()}`;
    }, byItself, true);
    if (mine === shown) {
      main.removeAttribute('aria-busy');
      // The current view belongs to another address.
      if (!done && place !== here) main.replaceChildren();
    }
  }
  if (mine === shown) showLater();
}

function showLater() {
  clearTimeout(timer);
  // Pages in the background are not refreshed.
  const next = () => (document.hidden ? showLater() : show(true));
  if (!settled) timer = setTimeout(next, refreshMs);
}

async function start() {
  const info = await ask('GET', '/info');
  document.getElementById('database').textContent = info.database ?? '';
  refreshMs = Math.max(1000, info.dashboard?.refresh_ms ?? REFRESH_MS_DEFAULT);
  document.getElementById('leave').hidden = !sessionStorage.getItem('sign');
  await show();
}

// The next element gets the focus only after the event.
main.addEventListener('focusout', () => setTimeout(() => { if (owed && !busy()) show(true); }));
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && place === location.hash && !settled) show(true);
});
addEventListener('hashchange', () => { trouble.hidden = true; show(); });
document.getElementById('refresh').addEventListener('click', () => show());
document.getElementById('leave').addEventListener('click', () => {
  sessionStorage.removeItem('sign');
  signIn();
});

async function begin() {
  if (!await act(start) && !document.getElementById('sign')) setTimeout(begin, AGAIN_MS);
}
begin();
