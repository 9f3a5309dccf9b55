"""`kvweave serve`: the HTTP server with its embedded engine, or vLLM's with kvweave in it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvweave.api import LocalModel
    from kvweave.config import Config
    from kvweave.metrics import Metrics


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
    """Serve models over HTTP, in OpenAI's and Anthropic's formats, until Ctrl-C.

    - `kvweave serve`
    - `kvweave serve --config kvweave.toml --port 9000`

    Without keys (`kvweave keys create`) only this machine is served.
    """
    from kvweave.api.exposure import check_exposure
    from kvweave.config import load_config
    from kvweave.metrics import Metrics

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

    from kvweave.api import create_app, run_server
    from kvweave.providers import Channel, RedactKeys, Router

    log = logging.getLogger("kvweave")
    router = Router.from_config(loaded.providers)
    redact = RedactKeys(*(provider.key for provider in router.providers))
    for handler in logging.getLogger().handlers:
        handler.addFilter(redact)
    for provider in router.providers:
        log.info(
            "provider %s: %s at %s",
            provider.name,
            ", ".join(provider.models),
            provider.base_url,
        )
    if not has_keys:
        log.info("no key was made yet: serving this machine only, without keys")
    metrics = Metrics()
    with ExitStack() as stack:
        accounts = Accounts(database)
        stack.callback(accounts.close)
        local: LocalModel | None = None
        render_metrics: Callable[[], bytes] = metrics.render
        if loaded.engine.enabled:
            local, render_metrics = stack.enter_context(
                running_engine(loaded, metrics, accept_quality=accept_quality)
            )
        app = create_app(
            local,
            render_metrics,
            accounts,
            channel=Channel(router) if router.providers else None,
            limits=loaded.server,
        )
        accounts.start()
        run_server(
            app,
            host,
            port if port is not None else loaded.server.port,
            client_timeout_s=loaded.server.client_timeout_sec,
        )


@contextmanager
def running_engine(
    config: Config, metrics: Metrics, *, accept_quality: bool
) -> Iterator[tuple[LocalModel, Callable[[], bytes]]]:
    """The configured engine, started; stopped on leaving. Also gives what renders its metrics."""
    # torch and transformers are imported here only: a server with providers alone needs neither.
    if not sys.stderr.isatty():
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()

    from kvweave.api import LocalModel
    from kvweave.cli.environment import warn_about_environment
    from kvweave.engine.build import build_engine
    from kvweave.metrics import HitRateLog
    from kvweave.prompt import ChunkRegistry, PromptBuilder

    warn_about_environment(config)
    logging.getLogger("kvweave").info("loading model %s", config.model.model_id)
    engine = build_engine(config, metrics, accept_quality=accept_quality)
    registry = ChunkRegistry()
    builder = PromptBuilder(
        engine.tokenizer,
        min_chunk_tokens=config.prompt.min_chunk_tokens,
        order_chunks=config.prompt.order_chunks,
        registry=registry,
    )
    hit_rate_log = HitRateLog(metrics, config.metrics.log_interval_sec)
    if config.metrics.enable_hit_rate_log:
        hit_rate_log.start()
    engine.start()
    try:
        yield (
            LocalModel(engine, builder, registry),
            lambda: metrics.render(engine.tier_stats(), engine.pending_chunks(), engine.speeds()),
        )
    finally:
        engine.stop()
        if config.metrics.enable_hit_rate_log:
            hit_rate_log.stop()
