// Package ecr asks Amazon's Elastic Container Registry for the password of a pull, with the keys of a user of AWS. It
// owns the names of ECR's hosts, the one request, and the words of its errors. It pulls no image and keeps no password:
// each call asks again. Who may use a registry is the caller's decision.
//
// Keys, region and answer are foreign text. The host of the request is made from a region of a known form only, and
// no text of an answer gets into an error.
package ecr
