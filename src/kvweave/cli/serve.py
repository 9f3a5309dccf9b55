"""`kvweave serve`: the HTTP server with its embedded engine, or vLLM's with kvweave in it."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer


def serve(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file to read. Without: the defaults.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on, in place of server.host.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port, in place of server.port. 0: any free one."),
    ] = None,
    accept_quality: Annotated[
        bool,
        typer.Option(
            "--accept-quality", help="Serve with reuse although the quality check at start fails."
        ),
    ] = False,
) -> None:
    """Serve a model over HTTP, in OpenAI's format, until Ctrl-C.

    - `kvweave serve`
    - `kvweave serve --config kvweave.toml --port 9000`

    Without keys (`kvweave keys create`) only this machine is served.
    """
    from kvweave.api.exposure import check_exposure
    from kvweave.config import load_config

    loaded = load_config(config)
    host = host if host is not None else loaded.server.host
    if loaded.model.engine == "vllm":
        from kvweave.integrations.vllm.launch import serve_vllm

        check_exposure(host, has_keys=bool(loaded.vllm.options.get("api_key")))
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        logging.getLogger("httpx").setLevel(logging.WARNING)
        serve_vllm(loaded, host, port if port is not None else loaded.server.port)
        return
    from kvweave.accounts import Accounts, Database, KeyStore

    database = Database.open(loaded.accounts.database_url)
    has_keys = KeyStore(database).version() > 0
    check_exposure(host, has_keys=has_keys)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for noisy in ("httpx", "uvicorn.error", "ContinuousBatchingLogger"):
        logging.getLogger(noisy).setLevel(logging.WARNING)

    if not sys.stderr.isatty():
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()

    from kvweave.api import create_app, run_server
    from kvweave.cli.environment import warn_about_environment
    from kvweave.engine.build import build_engine
    from kvweave.metrics import HitRateLog, Metrics
    from kvweave.prompt import ChunkRegistry, PromptBuilder

    log = logging.getLogger("kvweave")
    metrics = Metrics()
    warn_about_environment(loaded)
    if not has_keys:
        log.info("no key was made yet: serving this machine only, without keys")
    log.info("loading model %s", loaded.model.model_id)
    engine = build_engine(loaded, metrics, accept_quality=accept_quality)
    registry = ChunkRegistry()
    builder = PromptBuilder(
        engine.tokenizer,
        min_chunk_tokens=loaded.prompt.min_chunk_tokens,
        order_chunks=loaded.prompt.order_chunks,
        registry=registry,
    )
    accounts = Accounts(database)
    app = create_app(
        engine,
        builder,
        registry,
        lambda: metrics.render(engine.tier_stats(), engine.pending_chunks(), engine.speeds()),
        accounts,
    )
    hit_rate_log = HitRateLog(metrics, loaded.metrics.log_interval_sec)
    if loaded.metrics.enable_hit_rate_log:
        hit_rate_log.start()
    engine.start()
    accounts.start()
    try:
        run_server(app, host, port if port is not None else loaded.server.port)
    finally:
        engine.stop()
        accounts.close()
        if loaded.metrics.enable_hit_rate_log:
            hit_rate_log.stop()
