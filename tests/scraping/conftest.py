from tests.page_server import page_server

__all__ = ["page_server"]
