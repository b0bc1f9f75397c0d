// Package tenancy shows each tenant its own part of an engine: what another's is is not
// there, its names are its own, and its quotas hold. A View is an engine for one principal;
// package httpapi has one for each request and nothing else. It keeps which snapshots are
// public, and what each key has asked for in the last minute; whose a thing is says the
// engine. The trap: a View's methods are written out, one by one, and embed no engine. A
// method that the engine gets has to be thought about here before a route can call it.
package tenancy
