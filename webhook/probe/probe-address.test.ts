import { describe, expect, test } from "vitest";
import { AllowedHosts, probeAddressOf } from "./probe-address.ts";

describe("an endpoint's address", () => {
  test.each<[string, string | undefined, string]>([
    ["db.shop.svc:50051", undefined, "db.shop.svc:50051"],
    ["dns:///db.shop.svc:50051", "GRPC", "db.shop.svc:50051"],
    ["[::1]:443", "GRPC", "[::1]:443"],
    ["https://db.shop.svc/ask?token=x", "HTTP", "db.shop.svc:443"],
    ["http://0x7f.1/", "HTTP", "127.0.0.1:80"],
    ["db.shop.svc/x@evil", "GRPC", "db.shop.svc:443"],
  ])("%s", (endpoint, protocol, expected) => {
    expect(probeAddressOf({ endpoint, ...(protocol && { protocol }) }).text).toBe(expected);
  });

  test.each<[string, string, RegExp]>([
    ["https://u:p@db.svc/", "HTTP", /user name or a password/],
    ["https://u@db.svc/", "HTTP", /user name or a password/],
    ["u:p@db.svc:1", "GRPC", /user name or a password/],
    ["ftp://db.svc", "HTTP", /not an http or https URL/],
    ["db svc", "GRPC", /not a URL/],
  ])("%s is refused", (endpoint, protocol, expected) => {
    expect(() => probeAddressOf({ endpoint, protocol })).toThrow(expected);
  });
});

test.each<[string, boolean]>([
  ["db.shop.svc", true],
  ["DB.shop.svc.", true],
  [".svc", false],
  ["svc", false],
  ["db.shop.svc.evil.com", false],
  ["db.shop", false],
  ["probe.example.com", true],
  ["a.probe.example.com", false],
  ["10.1.2.3", true],
  ["11.1.2.3", false],
  ["169.254.169.254", false],
  ["fd00::5", true],
  ["::ffff:10.1.2.3", true],
  ["::ffff:11.1.2.3", false],
])("%s is allowed: %s", (name, expected) => {
  const allowed = new AllowedHosts(["*.svc", "probe.example.com", "10.0.0.0/8", "fd00::/16"]);
  const endpoint = name.includes(":") ? `[${name}]:1` : `${name}:1`;
  expect(allowed.has(probeAddressOf({ endpoint }).host)).toBe(expected);
});
