// Package serveconfig reads the configuration file of the daemon, and writes a documented example.
//
// The file is YAML. Its keys are the flags of `forkd serve` without the dashes, so there is one list
// of settings, one text for each and one check. A flag on the command line replaces the value in the
// file.
package serveconfig
