/**
 * Every component of an installation over a hostile network, and beside servers that fail: after the end of each fault
 * it works again without a restart, what it published was true, and it did not storm. By default each fault strikes all
 * connections at once; `PODSEIDON_TEST_SIZE=full` adds each fault of the network on each connection alone.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, test } from "vitest";
import type { Cluster } from "../../scripts/control-plane/cluster.ts";
import { root } from "../../scripts/root.ts";
import { eachAtMost } from "../support/cluster/pods.ts";
import { printTable } from "./components/component-evidence.ts";
import { type ComponentFault, ComponentHarness } from "./components/component-harness.ts";
import type { ComponentLink } from "./components/component-links.ts";
import { holdSeat, REFUSAL, refuseAccounts } from "./flow-control.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
/** As long as the requests are counted. */
const OUTAGE_MS = 10_000;
/** Longer than any stream waits for a word of its server. */
const HALF_OPEN_MS = 17_000;
const FROZEN_MS = FULL ? 60_000 : OUTAGE_MS;
const SLOW_MS = 4_000;
const SLOW = { bytesPerMs: 20, delayMs: 100 };
/** More than a server writes while it starts and everybody comes back. */
const LOST_WRITES = 600;
/**
 * More than a server writes while it starts, and few enough to be passed before the generator's lease is lost and it
 * lists everything anyway.
 */
const FEW_WRITES = 100;
const CRD = "podprotectors.podseidon.kubewharf.io";
const PROTECTORS = "/apis/podseidon.kubewharf.io/v1alpha1/podprotectors";
const CRD_FILE = join(root, "crds/podseidon.kubewharf.io_podprotectors.yaml");

let rig: ComponentHarness;

async function write(cluster: Cluster, times: number): Promise<void> {
  await eachAtMost(
    10,
    Array.from({ length: times }, (_, index) => index),
    async () => {
      await cluster.admin.call("POST", "/api/v1/namespaces/default/configmaps", {
        metadata: { generateName: "lost-" },
      });
    },
  );
}

beforeAll(async () => {
  rig = await ComponentHarness.start();
});

afterAll(async () => {
  printTable();
  await rig?.[Symbol.asyncDispose]();
});

type Network = (links: readonly ComponentLink[]) => Omit<ComponentFault, "links">;

const nothing = async (): Promise<void> => {};
const each = (links: readonly ComponentLink[], act: (link: ComponentLink) => unknown): Promise<unknown> =>
  Promise.all(links.map(act));
/** Those that have a stream on which events pass. */
const streams = (links: readonly ComponentLink[]): readonly ComponentLink[] =>
  links.filter(({ name }) => name !== "webhook-1 > cell" && name !== "update-trigger > cell");

function brokenLine(fault: "garbage" | "cutLine" | "cutCharacter"): Network {
  return (links) => ({
    name: fault,
    isOutage: false,
    begin: () => each(streams(links), ({ proxy }) => proxy.breakNextLine(fault)),
    end: nothing,
  });
}

const NETWORK: readonly [string, Network][] = [
  [
    "reset",
    (links) => ({
      name: "reset",
      isOutage: false,
      begin: () => each(links, ({ proxy }) => proxy.reset()),
      end: nothing,
    }),
  ],
  [
    "refused connections",
    (links) => ({
      name: "refused",
      isOutage: true,
      begin: async () => {
        await each(links, ({ proxy }) => proxy.refuse(true));
        await delay(OUTAGE_MS);
      },
      end: () => each(links, ({ proxy }) => proxy.refuse(false)),
    }),
  ],
  [
    "a host name that has no address any more",
    (links) => ({
      name: "unknown host",
      isOutage: true,
      begin: async () => {
        rig.links.unknown(links);
        await each(links, ({ proxy }) => proxy.reset());
        await delay(OUTAGE_MS);
      },
      end: async () => rig.links.unknown([]),
    }),
  ],
  [
    "half-open connections",
    (links) => ({
      name: "half-open",
      isOutage: true,
      begin: async () => {
        await each(links, ({ proxy }) => proxy.halfOpen(true));
        await delay(HALF_OPEN_MS);
      },
      end: () => each(links, ({ proxy }) => proxy.halfOpen(false)),
    }),
  ],
  [
    "a slow network in small pieces",
    (links) => ({
      name: "20 kB/s, 100 ms late",
      isOutage: false,
      begin: async () => {
        await each(links, ({ proxy }) => proxy.weather(SLOW));
        await each(links, ({ proxy }) => proxy.reset());
        await delay(SLOW_MS);
      },
      end: () => each(links, ({ proxy }) => proxy.weather({})),
    }),
  ],
  ["a garbage line", brokenLine("garbage")],
  ["a stream cut in the middle of a line", brokenLine("cutLine")],
  ["a stream cut in the middle of a character", brokenLine("cutCharacter")],
];

describe("the network", () => {
  test.each(NETWORK)("%s, everywhere at once", async (_title, network) => {
    const links = rig.links.all;
    await rig.during({ ...network(links), links });
  });

  const LINKS = [
    "webhook-1 > core",
    "webhook-1 > cell",
    "aggregator-cell > cell",
    "aggregator-cell > core",
    "generator > core",
    "update-trigger > cell",
  ];
  const matrix = NETWORK.flatMap(([title, network]) =>
    LINKS.map((link): [string, string, Network] => [title, link, network]),
  );
  test.runIf(FULL).each(matrix)("%s: %s", async (_title, name, network) => {
    const links = rig.links.all.filter((link) => link.name === name);
    await rig.during({ ...network(links), links });
  });
});

/** Both clusters at once, or each alone at full size. */
const PLACES = FULL ? (["core", "cell"] as const) : (["both"] as const);
type Place = "core" | "cell" | "both";

function clusters(place: Place): readonly Cluster[] {
  return place === "both" ? [rig.core, rig.cell] : [place === "core" ? rig.core : rig.cell];
}

function linksTo(place: Place): readonly ComponentLink[] {
  return rig.links.all.filter(({ cluster }) => clusters(place).includes(cluster));
}

interface ServerFault {
  readonly title: string;
  readonly holdMs: number;
  readonly isOutage?: boolean;
  begin(cluster: Cluster): unknown;
  end(cluster: Cluster): unknown;
}

const SERVER: readonly ServerFault[] = [
  {
    title: "apiserver kill -9",
    holdMs: OUTAGE_MS,
    begin: (cluster) => cluster.processes["kube-apiserver"].kill("SIGKILL"),
    end: (cluster) => cluster.processes["kube-apiserver"].start(),
  },
  {
    title: "apiserver SIGSTOP",
    holdMs: FROZEN_MS,
    begin: (cluster) => cluster.processes["kube-apiserver"].freeze(),
    end: (cluster) => cluster.processes["kube-apiserver"].thaw(),
  },
  {
    title: "etcd kill -9",
    holdMs: OUTAGE_MS,
    begin: (cluster) => cluster.processes.etcd.kill("SIGKILL"),
    end: (cluster) => cluster.processes.etcd.start(),
  },
  {
    title: "410 after compaction",
    holdMs: 0,
    isOutage: false,
    begin: (cluster) => cluster.expireVersions(),
    end: nothing,
  },
];

describe("the servers", () => {
  const matrix = SERVER.flatMap((fault) =>
    PLACES.map((place): [string, Place, ServerFault] => [fault.title, place, fault]),
  );
  test.each(matrix)("%s: %s", async (_title, place, fault) => {
    const isOutage = fault.isOutage ?? true;
    await rig.during({
      name: `${fault.title}, ${place}`,
      links: linksTo(place),
      isOutage,
      begin: async () => {
        await Promise.all(clusters(place).map((cluster) => fault.begin(cluster)));
        await delay(fault.holdMs);
      },
      end: () => Promise.all(clusters(place).map((cluster) => fault.end(cluster))),
    });
  });

  test("tokens that are revoked before the new ones are there", async () => {
    const links = rig.links.all;
    await rig.during({
      name: "revoked token",
      links,
      isOutage: true,
      prepare: () => each(links, ({ token }) => token.revoke()),
      begin: () => delay(OUTAGE_MS),
      end: () => each(links, ({ token }) => token.issue()),
    });
  });

  test("429 with Retry-After from priority and fairness", async () => {
    const links = rig.links.all;
    const both = clusters("both");
    using held = new DisposableStack();
    await rig.during({
      name: "429, Retry-After",
      links,
      isOutage: true,
      // It takes the server a moment to go by what is configured.
      prepare: async () => {
        await Promise.all(both.map((cluster) => cluster.apply(refuseAccounts([{ name: "*", namespace: "default" }]))));
        for (const cluster of both) held.use(await holdSeat(cluster));
        await each(links, ({ token }) => token.whenAnswered(429));
      },
      begin: () => delay(OUTAGE_MS),
      end: () => Promise.all(both.map((cluster) => cluster.admin.call("DELETE", REFUSAL))),
    });
  });

  test("a definition that disappears from etcd and comes back, its objects unharmed", async () => {
    await rig.during({
      name: "CRD disappears",
      links: linksTo("core"),
      isOutage: true,
      // It takes the server a moment to notice.
      prepare: async () => {
        await rig.core.etcd.deleteKey(`/registry/apiextensions.k8s.io/customresourcedefinitions/${CRD}`);
        const isGone = async () => (await rig.core.admin.request("GET", PROTECTORS)).status === 404;
        await rig.core.waitFor("its objects to be out of reach", isGone);
      },
      begin: () => delay(OUTAGE_MS),
      end: () => rig.core.apply(readFileSync(CRD_FILE, "utf8")),
    });
  });

  test.each(["core", "cell"] as const)("etcd of the %s restored to an older state", async (place) => {
    const cluster = place === "core" ? rig.core : rig.cell;
    const snapshot = cluster.snapshotEtcd();
    await write(cluster, LOST_WRITES);
    await rig.during({
      name: `etcd restored, ${place}`,
      links: linksTo(place),
      isOutage: false,
      begin: async () => {
        if (place === "cell") rig.cellGoesBack();
        await cluster.restoreEtcd(snapshot);
        if (place === "cell") rig.cellWentBack();
      },
      end: nothing,
    });
  });

  test("etcd of the cell restored, and its new history has passed what the aggregator saw before that can look", async () => {
    const links = rig.links.all.filter(({ name }) => name === "aggregator-cell > cell");
    const snapshot = rig.cell.snapshotEtcd();
    await write(rig.cell, LOST_WRITES);
    await rig.triggerMoves();
    const [version, counter] = [await rig.versionOf(rig.cell), await rig.triggerCounter()];
    await rig.during({
      name: "etcd restored, cell, overtaken",
      links,
      isOutage: true,
      begin: async () => {
        rig.cellGoesBack();
        await each(links, ({ proxy }) => proxy.refuse(true));
        await rig.cell.restoreEtcd(snapshot);
        while ((await rig.versionOf(rig.cell)) <= version) await write(rig.cell, LOST_WRITES);
        await rig.cell.waitFor("the counter to pass", async () => (await rig.triggerCounter()) > counter);
        rig.cellWentBack();
      },
      end: () => each(links, ({ proxy }) => proxy.refuse(false)),
    });
  });

  test("etcd of the core restored, and its new history has passed what the generator saw before that can look", async () => {
    const links = rig.links.all.filter(({ name }) => name === "generator > core");
    await rig.deploy("restored");
    const snapshot = rig.core.snapshotEtcd();
    await write(rig.core, FEW_WRITES);
    await rig.scale("restored", 5);
    await rig.isFollowed("restored", 5);
    const version = await rig.versionOf(rig.core);
    await rig.during({
      name: "etcd restored, core, overtaken",
      links,
      isOutage: true,
      begin: async () => {
        await each(links, ({ proxy }) => proxy.refuse(true));
        await rig.core.restoreEtcd(snapshot);
        // The last that is ever heard of this one, and by nobody whose stream is resumed behind it.
        await rig.scale("restored", 6);
        while ((await rig.versionOf(rig.core)) <= version) await write(rig.core, FEW_WRITES);
      },
      end: () => each(links, ({ proxy }) => proxy.refuse(false)),
    });
    await rig.isFollowed("restored", 6);
  });
});
