/** The page: choice of store, ring and view, and the announcement of the last result. */

import { useCallback, useEffect, useMemo, useRef, useState, type ReactNode } from "react";

import { get } from "./api";
import { COMMANDS } from "./commands";
import { HereContext, type Here } from "./context";
import { Command, Remedy } from "./parts/command";
import { Empty, Failure, Loaded, Notice } from "./parts/notice";
import { usePoll } from "./poll";
import { follow, go, href, useRoute, type Route } from "./route";
import type { Me, Store } from "./types";
import { BlocksView } from "./views/blocks";
import { CheckView } from "./views/check";
import { EventsView } from "./views/events";
import { FairnessView } from "./views/fairness";
import { NextView } from "./views/next";
import { QueueView } from "./views/queue";
import { QueuesView } from "./views/queues";
import { SetAsideView } from "./views/set_aside";
import { UsageView } from "./views/usage";

const VIEWS: Record<string, string> = {
  queues: "Queues",
  blocks: "Blocks",
  next: "Next blocks",
  "set-aside": "Set aside",
  fairness: "Fairness",
  usage: "Usage",
  events: "Events",
  check: "Check",
};

export function Page() {
  const stores = usePoll<Store[]>("stores", (signal) => get<Store[]>("stores", {}, signal), null);
  return (
    <div className="amq" onClick={follow}>
      <Loaded from={stores}>{(data) => (data.length === 0 ? <NoConnection /> : <WithStores stores={data} refresh={stores.refresh} />)}</Loaded>
    </div>
  );
}

function NoConnection() {
  return (
    <Empty title="No message queue is connected yet">
      <p>
        This page shows the stores that connections of type <em>Message queue</em> name. Create one under Admin → Connections, or set it
        in the environment of every Airflow process:
      </p>
      <Command>{COMMANDS.connect}</Command>
      <p>In production, set host, schema, login and password of a PostgreSQL database instead. Then reload this page.</p>
    </Empty>
  );
}

function WithStores({ stores, refresh }: { stores: Store[]; refresh: () => void }) {
  const route = useRoute();
  const store = stores.find((one) => one.conn_id === route.of.conn) ?? stores.find((one) => !one.error) ?? stores[0]!;
  const ring = route.of.ring && store.rings.includes(route.of.ring) ? route.of.ring : (store.rings.find((one) => one === "default") ?? store.rings[0]);
  const { conn: asked = store.conn_id, ring: named = ring } = route.of;
  return (
    <>
      <header className="row between">
        <h1>Message queue</h1>
        <Picker stores={stores} store={store} ring={ring} view={route.view} />
      </header>
      {!store.error && (asked !== store.conn_id || named !== ring) && (
        <Notice kind="warn">There is no ring “{named}” of connection “{asked}”, or you may not read it. This is another ring.</Notice>
      )}
      {store.error ? (
        <Notice kind="bad">
          <strong>{store.conn_id}</strong>: <Remedy text={store.error.replaceAll("`", "")} command={store.command} />
          <button type="button" onClick={refresh}>
            Try again
          </button>
        </Notice>
      ) : ring === undefined ? (
        <Empty title="This store has no ring yet">
          <p>A ring is a set of queues that share one budget. Create one:</p>
          <Command>{COMMANDS.createRing(store.conn_id)}</Command>
        </Empty>
      ) : (
        <WithRing key={`${store.conn_id} ${ring}`} conn={store.conn_id} ring={ring} route={route} />
      )}
    </>
  );
}

function Picker({ stores, store, ring, view }: { stores: Store[]; store: Store; ring: string | undefined; view: string }) {
  const shown = view === "queue" ? "queues" : view;
  return (
    <div className="row picker">
      <Choose label="Connection" value={store.conn_id} of={Object.fromEntries(stores.map((one) => [one.conn_id, one.error ? `${one.conn_id} (does not answer)` : one.conn_id]))} onChange={(conn) => go(shown, { conn })} />
      {ring !== undefined && (
        <Choose label="Ring" value={ring} of={Object.fromEntries(store.rings.map((one) => [one, one]))} onChange={(ring) => go(shown, { conn: store.conn_id, ring })} />
      )}
    </div>
  );
}

/** A choice among several, or the name of the only one. */
function Choose({ label, value, of, onChange }: { label: string; value: string; of: Record<string, string>; onChange: (value: string) => void }) {
  const names = Object.keys(of);
  return (
    <label className="row">
      <span className="muted">{label}</span>
      {names.length === 1 ? (
        <strong>{of[value]}</strong>
      ) : (
        <select value={value} onChange={(event) => onChange(event.target.value)}>
          {names.map((one) => (
            <option key={one} value={one}>
              {of[one]}
            </option>
          ))}
        </select>
      )}
    </label>
  );
}

type Announcement = { text: string; link?: { href: string; text: string }; kind: "good" | "warn" };

function WithRing({ conn, ring, route }: { conn: string; ring: string; route: Route }) {
  const me = usePoll<Me>(`me ${conn}`, (signal) => get<Me>("me", { conn_id: conn }, signal), null);
  const [announced, setAnnounced] = useState<Announcement | null>(null);
  const announce = useCallback<Here["announce"]>((text, link, kind = "good") => setAnnounced({ text, link, kind }), []);
  const here = useMemo<Here | null>(() => me.data && { conn, ring, me: me.data, announce }, [conn, ring, me.data, announce]);
  if (!here) return me.error ? <Failure error={me.error} /> : <p className="muted">Loading…</p>;
  return (
    <HereContext.Provider value={here}>
      <Tabs view={route.view} of={{ conn, ring }} />
      <div role="status" aria-live="polite">
        {announced && (
          <div className={`notice ${announced.kind} row between`}>
            <span>
              {announced.text} {announced.link && <a href={announced.link.href}>{announced.link.text}</a>}
            </span>
            <button type="button" aria-label="Dismiss" onClick={() => setAnnounced(null)}>
              ×
            </button>
          </div>
        )}
      </div>
      <Focused label={VIEWS[route.view] ?? route.of.origin ?? VIEWS.queues!}>
        <View route={route} />
      </Focused>
    </HereContext.Provider>
  );
}

function Tabs({ view, of }: { view: string; of: Record<string, string> }) {
  const current = view === "queue" ? "queues" : view;
  const tabs = useRef<HTMLElement>(null);
  // A narrow screen does not show all tabs; scroll to the current one.
  useEffect(() => {
    tabs.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [current]);
  return (
    <nav className="tabs" aria-label="Message queue" ref={tabs}>
      {Object.entries(VIEWS).map(([name, title]) => (
        <a key={name} href={href(name, of)} aria-current={current === name ? "page" : undefined}>
          {title}
        </a>
      ))}
    </nav>
  );
}

/** The last focused element of the page; Airflow may mount the page anew when the browser goes back. */
let last: Element | null = null;

/** The view. It takes the focus when the focused element is gone, so that the keyboard does not start at the top again. */
function Focused({ label, children }: { label: string; children: ReactNode }) {
  const view = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const page = view.current!.parentElement!;
    const note = (event: FocusEvent) => (last = event.target as Element);
    const keep = () => last && !last.isConnected && document.activeElement === document.body && view.current?.focus();
    const observer = new MutationObserver(keep);
    page.addEventListener("focusin", note);
    observer.observe(page, { childList: true, subtree: true });
    keep();
    return () => {
      page.removeEventListener("focusin", note);
      observer.disconnect();
    };
  }, []);
  return (
    <div role="group" aria-label={label} tabIndex={-1} ref={view}>
      {children}
    </div>
  );
}

function View({ route }: { route: Route }) {
  const { origin, priority } = route.of;
  switch (route.view) {
    case "queue":
      return <QueueView key={`${priority} ${origin}`} origin={origin ?? ""} priority={priority ?? "regular"} />;
    case "blocks":
      return <BlocksView />;
    case "next":
      return <NextView />;
    case "set-aside":
      return <SetAsideView />;
    case "fairness":
      return <FairnessView />;
    case "usage":
      return <UsageView />;
    case "events":
      return <EventsView />;
    case "check":
      return <CheckView />;
    default:
      return <QueuesView />;
  }
}
