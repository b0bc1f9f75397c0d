// Package e2bapi serves clients of E2B, unmodified: the control API, the guest's daemon (envd)
// over forkd's agent, and ports of sandboxes, all on the listeners of the native API. It maps
// theirs onto the engine's operations and knows nothing that the engine does not, but for what
// package records keeps: names, metadata and tokens. Texts, codes and shapes are E2B's to the
// letter, since clients read them; what is not there says so in their shape. The trap: a
// client's retry repeats whatever failed, so a request that fails must have left nothing.
package e2bapi
