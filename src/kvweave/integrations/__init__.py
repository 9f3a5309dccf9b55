"""kvweave inside other engines. Each integration is imported by its engine, never by kvweave."""
