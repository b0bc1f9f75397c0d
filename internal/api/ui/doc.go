// Package ui serves the web page of forkd, and keeps its sessions. The sources of the page are in
// the folder ui of the repository; dist has the built files, which are checked in.
//
// A session has two secrets. A cookie, out of reach for scripts, proves that the browser logged in.
// But browsers send cookies to every port of a host, so a server of a guest, forwarded to a port of
// the same host, would receive it. So each request also carries a proof in the header X-Forkd-UI,
// which the page stores for its own origin only. Neither alone is worth anything.
package ui
