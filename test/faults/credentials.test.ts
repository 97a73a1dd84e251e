/**
 * Every component of an installation while its kubeconfigs are renewed, behind proxies. Over a renewal nothing fails:
 * no component complains, and every deletion is decided. A kubeconfig that can't be used leaves the one before in
 * force. `PODSEIDON_TEST_SIZE=full` adds renewals of users, and proxies that hang, on each connection alone.
 */

import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Component } from "../../scripts/environment/component.ts";
import { temporaryDirectory } from "../support/runtime/temporary-directory.ts";
import { printTable } from "./components/component-evidence.ts";
import { type ComponentFault, ComponentHarness } from "./components/component-harness.ts";
import { type Form, type RenewedLink, RenewedLinks, ServerCertificate } from "./components/renewed-links.ts";

const FULL = process.env.PODSEIDON_TEST_SIZE === "full";
const FORMS: readonly Form[] = ["inline", "file"];
/** Long enough for the files to be read, for two pods, and for the files of the next one to be read, also when busy. */
const SHORT_LIVED_MS = 45_000;
const OUTAGE_MS = 10_000;
/** Longer than it takes until a component looks at its kubeconfig again. */
const NOTICED_MS = 7_000;

const directory = temporaryDirectory();
let server: ServerCertificate;
let harness: ComponentHarness<RenewedLink>;

beforeAll(async () => {
  server = new ServerCertificate(directory);
  await server.rotate();
  harness = await ComponentHarness.start((folder) => new RenewedLinks(folder, server), server.flags);
});

afterAll(async () => {
  printTable();
  await harness?.[Symbol.asyncDispose]();
});

const nothing = async (): Promise<void> => {};
type Act = (link: RenewedLink) => unknown;
const each = (links: readonly RenewedLink[], act: Act): Promise<unknown> => Promise.all(links.map(act));

/** Another credential, and none but it: a component that did not notice it can't go on with the one before. */
async function replaced(links: readonly RenewedLink[], replace: Act): Promise<void> {
  const revokers = links.map(({ token }) => token.revoker());
  await each(links, replace);
  await delay(NOTICED_MS);
  await Promise.all(revokers.map((revoke) => revoke()));
}

type Fault = (links: readonly RenewedLink[]) => Omit<ComponentFault<RenewedLink>, "links">;

const RENEWALS: readonly [string, Fault][] = FORMS.flatMap((form): [string, Fault][] => [
  [
    `a renewed token, ${form}`,
    (links) => ({
      name: `renewed token, ${form}`,
      isOutage: false,
      isSilent: true,
      prepare: () => replaced(links, (link) => link.issueToken(form)),
      // The new token is there before the old one is revoked, as Kubernetes' own are.
      begin: () =>
        each(links, async (link) => {
          const revoke = link.token.revoker();
          await link.issueToken(form);
          await revoke();
        }),
      end: nothing,
    }),
  ],
  [
    `a renewed client certificate, ${form}`,
    (links) => ({
      name: `renewed client certificate, ${form}`,
      isOutage: false,
      isSilent: true,
      prepare: async () => {
        // The tokens before are revoked first, which takes longer than a short life on a busy machine.
        await replaced(links, (link) => link.issueCertificate(form));
        await each(links, (link) => link.issueCertificate(form, SHORT_LIVED_MS));
        await delay(NOTICED_MS);
      },
      begin: async () => {
        await each(links, (link) => link.issueCertificate(form));
        await delay(SHORT_LIVED_MS - NOTICED_MS);
      },
      end: nothing,
    }),
  ],
]);

const UNANSWERED: Fault = (links) => ({
  name: "CONNECT unanswered",
  isOutage: true,
  begin: async () => {
    await each(links, ({ proxy }) => proxy.hang(true));
    await delay(OUTAGE_MS);
  },
  end: () => each(links, ({ proxy }) => proxy.hang(false)),
});
const FAULTS: readonly [string, Fault][] = [
  ...RENEWALS,
  ["a proxy that accepts connections and never answers CONNECT", UNANSWERED],
];

describe("every connection at once, and each alone", () => {
  test.each(FAULTS)("%s, everywhere at once", async (_title, fault) => {
    const links = harness.links.all;
    await harness.during({ ...fault(links), links });
  });

  const LINKS = ["webhook-1 > core", "webhook-1 > cell", "aggregator-cell > cell", "aggregator-cell > core"];
  const matrix = FAULTS.flatMap(([title, fault]) =>
    [...LINKS, "generator > core", "update-trigger > cell"].map((link): [string, string, Fault] => [
      title,
      link,
      fault,
    ]),
  );
  test.runIf(FULL).each(matrix)("%s: %s", async (_title, name, fault) => {
    const links = harness.links.all.filter((link) => link.name === name);
    await harness.during({ ...fault(links), links });
  });
});

describe("a kubeconfig is renewed", () => {
  test.each(FORMS)("with the apiservers' new authority, %s", async (form) => {
    const links = harness.links.all;
    await harness.during({
      name: `renewed CA, ${form}`,
      links,
      isOutage: false,
      prepare: async () => {
        await each(links, (link) => link.write(form));
        await delay(NOTICED_MS);
      },
      begin: async () => {
        await server.rotate();
        await each(links, ({ cluster }) => server.whenShown(cluster));
        await each(links, (link) => link.write(form));
        // Open connections are none of the new authority's business.
        await each(links, ({ proxy }) => proxy.hang(false));
      },
      end: nothing,
    });
  });

  test("with a text that can't be used: the one before stays in force", async () => {
    const links = harness.links.all;
    await harness.during({
      name: "unreadable kubeconfig",
      links,
      isOutage: false,
      begin: async () => {
        await each(links, (link) => link.replace('{"clusters": ['));
        await delay(NOTICED_MS);
      },
      end: nothing,
    });
    await each(links, (link) => link.write());
  });

  test("with a proxy that can't be used: nothing is sent past the proxy", async () => {
    const links = harness.links.all;
    await harness.during({
      name: "socks5 proxy",
      links,
      isOutage: false,
      begin: async () => {
        await each(links, (link) => link.write("inline", "socks5://127.0.0.1:1"));
        await delay(NOTICED_MS);
      },
      end: nothing,
    });
    const [link] = links;
    const args = ["--kubeconfig", link?.path ?? "", "--leader-elect=false", "--namespace", "default"];
    const started = Component.start({ kind: "update-trigger", name: "socks", directory, args });
    await expect(started).rejects.toThrow(/proxy-url.*socks5/);
    await each(links, (one) => one.write());
  });
});
