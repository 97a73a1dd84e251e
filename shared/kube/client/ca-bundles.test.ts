import { expect, test } from "vitest";
import { authority, GET, material, ok, startServer, VALID } from "../../../test/support/kube/https-server.ts";
import { createCertificateAuthority } from "../../certificates/x509.ts";

const other = await createCertificateAuthority({ ...VALID, commonName: "another" });

test.each([
  ["damaged", "-----BEGIN CERTIFICATE-----\nMIIBAAAA\n-----END CERTIFICATE-----\n"],
  ["that was cut off", other.certificatePem.slice(0, 200)],
])("an authority %s does not take those behind it along", async (_, unreadable) => {
  const ca = `# all of them\n${other.certificatePem}${unreadable}\n${authority.certificatePem}`;
  const it = await startServer(ok, {}, material({ ca }));
  expect((await it.transport.request(GET)).status).toBe(200);
});
