// Package webui serves the web page on this host, for daemons that browsers cannot reach or cannot
// log in to: on a Unix socket, in a machine, or with the credentials of the command line. It passes
// requests of logged-in browsers on to the daemon as the user who started it.
package webui
