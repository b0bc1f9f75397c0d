// Package wire converts between the domain and the types of package api. A function named after a type of api
// returns that type; one whose name begins with Domain converts a part of a request. It has the conversions that
// several families of routes use; the others are beside their routes. It calls no engine.
package wire
