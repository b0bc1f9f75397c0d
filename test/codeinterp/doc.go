// Package codeinterp runs the server of recipes/code-interpreter-v1 on this host, in a virtual
// environment with the recipe's own pins, and speaks with it as E2B's SDKs do (testdata/protocol.py),
// and through the real SDK (testdata/sdk.py). It owns no code but tests. A VM is not needed: a fork is
// played by running the image's hook; testdata/vm.py and languages.py are for VMs (make codeinterp). The trap:
// JavaScript, TypeScript, R and Java are looked at only as far as the host has node, esbuild, R and a JDK.
package codeinterp
