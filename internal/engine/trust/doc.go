// Package trust makes a guest trust the certificate forkd-net uses for hosts where it sets headers.
// It knows the locations of systems' certificate bundles, and the variables that point programs to
// them. It makes no certificates and does not decide which guest needs one. Package launch calls it
// after the identity, and the engine when forkd-net has another certificate. The guest is hostile,
// so data read from it is bounded, and is written only back into the guest.
package trust
