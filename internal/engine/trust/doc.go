// Package trust has a guest trust the certificate that forkd-net answers with where the host sets
// headers. It knows where systems keep their bundles, and which variables lead programs there; it
// makes no certificates and asks nobody which guest needs one. Launch calls it after the identity,
// and the engine when forkd-net has another certificate. The trap: the guest is hostile, so what
// is read of it is bounded, and goes nowhere but back into it.
package trust
