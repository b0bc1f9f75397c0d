// Package codeinterp runs the server of recipes/code-interpreter-v1 on this host, in a virtual
// environment with the recipe's own pins. It speaks to the server as E2B's SDKs do
// (testdata/protocol.py), and through the real SDK (testdata/sdk.py). It contains only tests. They
// need no VM, because they simulate a fork by running the image's hook. testdata/vm.py and
// languages.py are for VMs (make codeinterp). The trap: JavaScript, TypeScript, R and Java are
// tested only if the host has node, esbuild, R and a JDK.
package codeinterp
